// Package rdstcp tests RDS/TCP between rdsd and Linux's rds_tcp, on two emulated hosts.
// Either of the two may have the smaller address.
package rdstcp
