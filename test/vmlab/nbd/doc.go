// Package nbd tests examples/nbd as disks of Linux: md's stripes and mirror over two of them, and
// ext4 on the mirror, while hosts, daemons' connections and nbd fail.
package nbd
