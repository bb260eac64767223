"""Commands that make one checkpoint from another, or export one."""
