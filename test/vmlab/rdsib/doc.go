// Package rdsib tests RDS/IB 3.1 between rdsd and Linux's rds_rdma over soft-RoCE,
// on two emulated hosts: whichever of them has the smaller address.
package rdsib
