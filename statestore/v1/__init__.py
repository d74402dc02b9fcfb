"""Generated from proto/ by tools/proto.py."""
