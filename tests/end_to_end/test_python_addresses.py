"""Where the Python package finds the bytes of an object, on the host and on a GPU, without importing what made it."""

import ctypes

import pytest

from python_client_parts import MIB, arena, client, code_of, gantry  # noqa: F401

from gantry.address import address_of

DEVICE_ADDRESS = 0x7F0000000000


class Tensor:
    """What a tensor of torch offers on a GPU."""

    def __init__(self, count=10, contiguous=True):
        self.is_contiguous = lambda: contiguous
        self.data_ptr = lambda: DEVICE_ADDRESS + 512
        self.numel, self.element_size = lambda: count, lambda: 2

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("torch refuses this of a tensor that requires a gradient")


class Storage:
    """An untyped storage of torch: its nbytes is a method."""

    def data_ptr(self):
        return DEVICE_ADDRESS

    def nbytes(self):
        return 300


class OnGpu:
    def __init__(self, shape, strides=None, mask=None):
        self.__cuda_array_interface__ = {"data": (DEVICE_ADDRESS, False), "shape": shape, "typestr": "<f4",
                                         "strides": strides, "version": 3, "mask": mask}


class DlTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Exported:
    """What speaks DLPack and nothing else; remembers the stream that it was told."""

    def __init__(self, shape, strides=None, device=2, bits=16):
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = (ctypes.c_int64 * len(strides))(*strides) if strides else None
        self.tensor = DlTensor(DEVICE_ADDRESS, device, 0, len(shape), 2, bits, 1, self.shape, self.strides, 64)
        self.told = []

    def __dlpack_device__(self):
        return self.tensor.device_type, 0

    def __dlpack__(self, stream=None):
        self.told.append(stream)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


@pytest.mark.parametrize("view, place", [
    (Tensor(), (DEVICE_ADDRESS + 512, 20)),
    (Storage(), (DEVICE_ADDRESS, 300)),
    (OnGpu((2, 3)), (DEVICE_ADDRESS, 24)),
    (OnGpu((2, 3), (12, 4)), (DEVICE_ADDRESS, 24)),
    (OnGpu((2, 3), (4, 8)), (DEVICE_ADDRESS, 24)),
    (OnGpu((2, 3), (24, 4)), (DEVICE_ADDRESS, 36)),
    (OnGpu((1, 3), (999, 4)), (DEVICE_ADDRESS, 12)),  # the stride of one element means nothing
    (OnGpu(()), (DEVICE_ADDRESS, 4)),
    (Exported((4, 5)), (DEVICE_ADDRESS + 64, 40)),
    (Exported((4, 5), (5, 1)), (DEVICE_ADDRESS + 64, 40)),
    (Exported((4, 5), (1, 4)), (DEVICE_ADDRESS + 64, 40)),
    (Exported(()), (DEVICE_ADDRESS + 64, 2)),
], ids=lambda value: type(value).__name__)
def test_everything_on_a_gpu_has_its_address_and_length(view, place):
    assert address_of(view) == place


@pytest.mark.parametrize("view", [
    Tensor(contiguous=False), OnGpu((2, 3), (12, 8)), OnGpu((2, 3), (8, 4)), OnGpu((2,), mask=object()),
    Exported((4, 5), (1, 5)), Exported((4, 5), (20, 2)), Exported((4,), bits=4)],
    ids=lambda value: type(value).__name__)
def test_what_is_not_one_run_of_bytes_is_refused(view):
    assert code_of(address_of, view) == "invalid_argument"


def test_no_stream_is_waited_for():
    on_gpu, on_host = Exported((4,)), Exported((4,), device=1)
    address_of(on_gpu), address_of(on_host)
    assert on_gpu.told == [-1] and on_host.told == [None]


def test_a_cache_is_registered_layer_by_layer_in_one_call(client, arena):
    layers = [[arena.view(i * 8192, 4096), arena.view(i * 8192 + 4096, 1024)] for i in range(3)]
    buffers = client.register_layers("kv", layers, layout=gantry.Layout(1024))
    assert [buffer.name for buffer in buffers] == ["kv.0", "kv.1", "kv.2"]
    assert [len(buffer) for buffer in buffers] == [5120] * 3
    listed = client.request("GET", "/v1/buffers?workload=w")["buffers"]
    assert [one["layout"]["blocks"] for one in listed] == [5, 5, 5]
    # All or nothing, and a device address where no driver is loaded is refused like any other.
    assert code_of(client.register_layers, "other", [arena.view(0, 10), Tensor()]) == "not_exportable"
    assert len(client.request("GET", "/v1/buffers?workload=w")["buffers"]) == 3


def test_resolve_says_all_extents(client):
    whole = client.arena(MIB)
    assert client.resolve(whole.view(100, 50)) == [(address_of(whole)[0], 100, 50)]
