"""Models: ``@MODELS.register``; each is given ``num_classes`` and ``input_shape`` if it takes them."""
