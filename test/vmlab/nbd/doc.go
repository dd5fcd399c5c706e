// Package nbd tests examples/nbd as a disk of Linux: ext4 on /dev/nbd0, over a mirror whose
// legs, daemons and connections fail.
package nbd
