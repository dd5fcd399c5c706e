// Package judge accounts for every message and operation of a campaign. It uses only the
// logs of the applications (package book), and the times at which processes were ended and
// disturbed. It knows docs/guarantees.md and nothing of daemons. It is pure: records in,
// violations out.
//
// What an application cannot know is excused, and counted as excused. For example, a
// message may be lost unread when the socket that it was delivered to closes, or withdrawn
// when its own socket closes. Everything else is a violation.
//
// A violation names its rule:
//
//   - twice, order, invented, content, routing, failed send, silent: a message arrived more than
//     once, behind a later one, without being sent, changed, at another socket, though its send
//     had failed, though it was silent.
//   - lost: a message neither arrived nor was reported, and has no excuse.
//   - told and delivered: there are more NoSocket, Lost or GaveUp than messages that can have
//     ended so. NoSocket needs an end of the socket that was met, Lost a restart of the peer's
//     daemon, GaveUp a limit.
//   - notice: a PeerDown, PeerUp or Unreachable that no fault explains, or about the own host; more
//     PeerDown or PeerUp than planned restarts of the peer's daemon; NotGranted.
//   - zero copy: a cookie came back twice, unasked, or not at all.
//   - next owner: a message for a port's former owner, or one that named another socket, came to
//     the port's next owner.
//   - status: none at the end or behind a CloseWait, a second one, two fates of one message,
//     DROPPED or REMOTE_ERROR of a message that arrived, UNKNOWN without a restart of the peer or a
//     limit, CANCELED without a cancel.
//   - refusal: an operation that its daemon let pass to a device that refused it, or that was
//     refused for a quota or without a reason.
//   - access: success beyond a region, without the right, by a socket that the region was not
//     granted to, or after Release; memory that changed after Release.
//   - data: memory without what a delivered message wrote; a read of something else.
//   - atomic, use once: atomics that ran twice, not at all, or though they were DROPPED; a second
//     use of a key for one use.
//   - mark: a high-water mark that fell, passed what was not sent, or stayed behind statuses; local
//     memory used after it had passed.
//   - session, bind, close, application: a session ended while its daemon went on, a port was bound
//     twice, a CloseWait at the end failed, a call returned an error that no doc comment names.
//
// A message that did not arrive is excused by what excuse.go lists: a notice that counts it or a
// status of its operation; the end of its receiver with the message unread, if the socket
// received nothing behind it; a cancel, or the end of its sender, if it was not known to be
// acked. A message is known to be acked by its zero-copy cookie, by the SUCCESS of its operation, or by
// that of a later operation of the same flow.
package judge
