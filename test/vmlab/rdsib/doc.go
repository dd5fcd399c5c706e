// Package rdsib tests RDS/IB 3.1 between rdsd and Linux's rds_rdma over soft-RoCE, on two
// emulated hosts. Either of the two may have the smaller address.
package rdsib
