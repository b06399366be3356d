"""Wheels before 1.4 import torch to tell tensors from numbers. No tensor is passed here, and torch is a gigabyte."""


class Tensor:
    pass
