// Package sim tests whole systems in virtual time. A system is two to four hosts, each with
// a real daemon engine on a verbs/sim device and with real rds clients, all in one
// goroutine. Faults and load are drawn from a seed. The tests check the invariants of
// docs/guarantees.md at every step. docs/testing.md says how to replay a seed that failed.
//
// A failure names its rule:
//
//   - exactly once, order, content, routing: each delivery against the ledger of accepted sends.
//   - both or neither: target bytes at the moment of delivery and of SUCCESS; no delivery that a
//     status excludes; both operations of a message succeed or neither; no second placement.
//   - never twice: a word where the ith operation adds 1 to the ith pair of bits.
//   - linearizable: the history of each word, by porcupine.
//   - HWM: it never falls, never passes what was issued, and reaches that within 50 ms of virtual
//     time; local buffers are overwritten the moment it passes, and must stay so.
//   - status: at most one, exactly one for Notify, and one that is possible.
//   - access: guards around each region; nothing changes after Release returned; no operation
//     without grant, right or bounds succeeds; a key for one use serves one message.
//   - notice: only kinds that were asked for, about destinations to which something was sent;
//     GaveUp never before its limit; no PeerUp without a connection.
//   - zero copy: each cookie comes back once, to the socket that sent it.
//   - congestion, credits, protocol, one bad key: relief where a send had failed; both ends agree when
//     quiet; no peer breaks the protocol; no refused key breaks a connection.
//   - quota: no user gets more registered memory than it may have.
//   - leak, liveness, session: nothing is left, nothing is stuck, the daemon ended no client.
//
// An event line has the virtual time in µs, the host, what happened, and its numbers: send and recv
// the message, destination port and length; send+op the message, operation and region; status the operation, status
// and errno; hwm the mark and source port; register the region, length and rights; release,
// released and learn the region; notice its kind, port and count; zerocopy the cookie; relief
// the mask and source port. The engine's own words have the peer and the reason.
package sim
