"""What all commands share: their options, their messages and how they are registered."""
