"""The training loop and the strategies that own its step boundary."""
