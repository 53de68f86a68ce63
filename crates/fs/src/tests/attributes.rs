//! Attributes of many sizes in all their homes, symlinks, devices, inline files.
