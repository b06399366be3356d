"""KV caches as vLLM lays them out on a GPU, made by PyTorch alone.

test_gpu_vllm_layouts.py moves blocks of them. tests/vllm/layouts_cases.py compares those of several groups with vLLM's own.
"""

LAYERS, TOKENS, HEADS, ELEMENTS = 6, 16, 4, 64  # of a layer; tokens, heads and elements (of K and V) of a block
BLOCK = TOKENS * HEADS * ELEMENTS  # elements of a layer's block
PAGE = 4 * BLOCK  # bytes
ONE_GROUP = ["NHD", "HND", "cross NHD", "cross HND"]

# Several groups share the memory of one allocation: a block's page is one group's at a time. A state has the first bytes of its
# page. vLLM 0.26 has such caches too, but GantryConnector moves them from vLLM 0.30 on.
STATE = (3 * 41 + 4 * 8 * 8) * 4  # bytes of a state of Mamba2
GROUPS = ["states NHD", "states HND", "states cross NHD", "states alone", "chunks NHD", "chunks HND"]
SHARED = 2  # layers of each group of "states"


def bytes_of(layout):
    """Returns how many bytes a block has in all layers."""
    if layout in ONE_GROUP:
        return LAYERS * PAGE
    return {"states": SHARED * PAGE, "chunks": PAGE}[layout.split()[0]] if layout != "states alone" else SHARED * STATE


def tensors_of(layout, blocks, seed, device):
    """(all bytes, as vLLM allocates them; the tensors that its connector is given), other ones for another seed."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def memory(elements):
        return torch.randint(-2**31, 2**31 - 1, (elements,), dtype=torch.int32, generator=generator).to(device)

    if layout in GROUPS:
        whole = memory(blocks * bytes_of(layout) // 4)
        return [whole], _tensors_of_groups(layout, blocks, whole)
    if layout == "cross NHD":
        whole = memory(LAYERS * blocks * BLOCK)
        return [whole], [whole.view(blocks, LAYERS, TOKENS, HEADS, ELEMENTS)]
    if layout == "cross HND":
        whole = memory(LAYERS * blocks * BLOCK)
        return [whole], [whole.view(blocks, HEADS, LAYERS, TOKENS, ELEMENTS)]
    layers = [memory(blocks * BLOCK) for _ in range(LAYERS)]
    return layers, [_keys_of(layout, blocks, layer, 0, BLOCK) for layer in layers]


def _tensors_of_groups(layout, blocks, whole):
    if layout.startswith("chunks"):  # three layers with chunks and one without, each a group of its own
        return [_keys_of(layout, blocks, whole, 0, BLOCK) for _ in range(4)]
    if layout == "states alone":
        return [_states_of(blocks, whole, layer * blocks * STATE, STATE) for layer in range(SHARED)]
    block, layer_step = (SHARED * PAGE, PAGE) if "cross" in layout else (PAGE, blocks * PAGE)
    made = []
    for layer in range(SHARED):  # two groups of states, and one of keys and values
        made += [_states_of(blocks, whole, layer * layer_step, block) for _ in range(2)]
        made.append(_keys_of(layout, blocks, whole, layer * layer_step // 4, block // 4))
    return made


def _keys_of(layout, blocks, whole, offset, step):
    """Keys and values of a layer; elements."""
    inner = (TOKENS * ELEMENTS, ELEMENTS, 1) if layout.endswith("HND") else (ELEMENTS, HEADS * ELEMENTS, 1)
    return whole.as_strided((blocks, HEADS, TOKENS, ELEMENTS), (step, *inner), offset)


def _states_of(blocks, whole, offset, step):
    """States of a layer; bytes."""
    import torch

    return whole.view(torch.int8).as_strided((blocks, 1, 1, STATE), (step, STATE, STATE, 1), offset)
