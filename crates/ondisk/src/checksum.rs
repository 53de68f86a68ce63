//! Which checksum a volume uses.
