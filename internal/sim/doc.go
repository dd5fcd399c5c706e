// Package sim runs whole systems in virtual time: two to four hosts, each a
// real daemon engine on a verbs/sim device with real rds clients, one
// goroutine, one seed. Its tests draw faults and load from the seed and check
// the invariants of docs/guarantees.md at every step. docs/testing.md says how
// a failing seed is replayed.
package sim
