// Package sim tests whole systems in virtual time. A system is two to four hosts, each with
// a real daemon engine on a verbs/sim device and with real rds clients, all in one
// goroutine. Faults and load are drawn from a seed. The tests check the invariants of
// docs/guarantees.md at every step. docs/testing.md says how to replay a seed that failed.
package sim
