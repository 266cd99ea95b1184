"""Everything that is torch_xla's. Another backend would be another folder beside this one."""
