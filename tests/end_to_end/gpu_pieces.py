"""Virtual GPU memory of a workload: a range of addresses with pieces of memory in it, as PyTorch's expandable segments are."""

from gpu_workloads import GpuCommands


class PieceCommands(GpuCommands):
    """What it allocates is made of pieces when their sizes are told."""

    def __init__(self, run_dir, name):
        super().__init__(run_dir, name)
        self.pieces = {}  # sizes, by name

    def allocate_pieces(self, name, sizes):
        self.allocations[name], self.pieces[name] = self.driver.reserve(sum(sizes)), list(sizes)
        for index in range(len(sizes)):
            self._map(name, index)
        return self.allocations[name]

    def map_anew(self, name, index):
        """Other memory at the same addresses."""
        self.unmap(name, index)
        self._map(name, index)

    def unmap(self, name, index):
        self.driver.unmap_piece(self._address(name, index), self.pieces[name][index])

    def _address(self, name, index):
        return self.allocations[name] + sum(self.pieces[name][:index])

    def _map(self, name, index):
        self.driver.map_piece(self._address(name, index), self.pieces[name][index])
