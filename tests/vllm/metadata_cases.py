"""The scheduler's message to the worker: a step with anything in it is not taken for an empty one."""

import dataclasses
import unittest

from gantry_vllm.metadata import StepMetadata


class MetadataCases(unittest.TestCase):

    def test_a_step_with_anything_to_do_is_not_empty(self):
        self.assertTrue(StepMetadata().is_empty())
        for field in dataclasses.fields(StepMetadata):
            self.assertFalse(StepMetadata(**{field.name: {"x": 1}}).is_empty(), field.name)
