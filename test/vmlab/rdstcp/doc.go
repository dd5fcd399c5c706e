// Package rdstcp tests RDS/TCP between rdsd and Linux's rds_tcp, on two emulated
// hosts: whichever of them has the smaller address.
package rdstcp
