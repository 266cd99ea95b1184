"""Data: ``@DATASETS.register``; a class with ``spec``, ``train()``, ``val()`` and, if it can, ``lengths()``.

A module that defines one does not import torch at its top, so that sizes and shapes are checked before torch
is imported.
"""
