// Package mutant holds deliberately broken variants of the code, to show that
// the tests catch them. A variant is one condition at the place it breaks:
//
//	if h.Seq > c.rxLast || mutant.On(mutant.DuplicatesTaken) {
//
// Without the build tag mutant, On is false and the compiler removes the
// condition. With it, the environment variable RDSD_MUTANT names the variant
// that is on. `make mutants` runs, for each, the check that has to catch it:
// see internal/mutant/run.
package mutant

// Name of a variant.
type Name string

// The variants, by what they break.
const (
	// Connections.

	UnreachedUntold   Name = "unreached-untold"    // nobody is told that a host is not reached
	KernelBelieved    Name = "kernel-believed"     // whoever says that it is a Linux kernel is taken for one
	CrossingUndecided Name = "crossing-undecided"  // of two crossing requests each side rejects the other's
	CrossingCounts    Name = "crossing-counts"     // a rejection because of a request of the peer's own counts as a failure
	SequenceReset     Name = "sequence-reset"      // sequences start again with a connection
	DuplicatesTaken   Name = "duplicates-taken"    // a retransmission that was received is taken again
	TCPDuplicateTaken Name = "tcp-duplicate-taken" // the same over RDS/TCP
	TCPAckUnheard     Name = "tcp-ack-unheard"     // TCP's ack counts on a connection that the peer's RDS may never see
	TCPLateUnread     Name = "tcp-late-unread"     // a connection that came too late is closed with what the peer sent on it
	TCPCookieTaken    Name = "tcp-cookie-taken"    // a message with a cookie goes to a peer that may fail on it
	TCPDialedEarly    Name = "tcp-dialed-early"    // a connection that was dialed is used before what came on others was read
	TCPEndedArrives   Name = "tcp-ended-arrives"   // a message that was cancelled comes by the old connection beside the new one
	TCPPongKept       Name = "tcp-pong-kept"       // a pong waits for a lane that nobody connects
	AckBeforeQueueing Name = "ack-before-queueing" // a message in fragments is acked with its first one
	AckCoversNotice   Name = "ack-covers-notice"   // an ack passes a message whose notice has not been sent
	NoGate            Name = "no-gate"             // HELLO's ack settles before the notices it speaks of are there
	WrongInstance     Name = "wrong-instance"      // an ack of another instance of this daemon counts
	LastCredit        Name = "last-credit"         // the last credit is used though no credits come back with it
	CancelEarly       Name = "cancel-early"        // a cancelled message returns while work requests use its memory
	PeersStay         Name = "peers-stay"          // a peer that was met is never forgotten
	PastForgotten     Name = "past-forgotten"      // a peer is forgotten with what keeps its messages from arriving twice
	LaneForgotten     Name = "lane-forgotten"      // a lane that is dropped beside others leaves no sequences behind
	SilenceIgnored    Name = "silence-ignored"     // a peer that says nothing any more is waited for without end

	LargeLostForEver Name = "large-lost-for-ever" // that large packets do not pass is never found
	OutageNarrows    Name = "outage-narrows"      // a connection after an outage keeps the smaller segments that were tried
	PauseUnnoticed   Name = "pause-unnoticed"     // a machine that stood still is taken for an engine that hangs

	// A planned pause.

	HaltBreaksOps    Name = "halt-breaks-ops"    // operations in progress are broken off with their connections
	HaltTold         Name = "halt-told"          // destinations are told that a pause broke their connection off
	HaltRequest      Name = "halt-request"       // a request to connect that comes in a pause is answered at once
	HandoverReceived Name = "handover-received"  // a connection is handed over without what it has received
	HandoverPosted   Name = "handover-posted"    // ... without which operations were posted
	HandoverStopped  Name = "handover-stopped"   // ... without which ports have refused
	HandoverAnswered Name = "handover-answered"  // ... without which atomics have their result
	HandoverGrants   Name = "handover-grants"    // a host is handed over without what it grants
	HandoverTCPSeen  Name = "handover-tcp-seen"  // a connection by RDS/TCP is handed over without what it has received
	HandoverTCPAgain Name = "handover-tcp-again" // ... without which of its lanes were up
	HandoverUs       Name = "handover-us"        // ... without what this daemon is to it
	HandoverMet      Name = "handover-met"       // ... without which instance of it was met
	HandoverPast     Name = "handover-past"      // ... without the lanes that were forgotten
	HandoverUntold   Name = "handover-untold"    // ... without which keys it may not know to be taken back
	HandoverWarned   Name = "handover-warned"    // ... as if each lane had been warned of all of them
	HandoverParted   Name = "handover-parted"    // ... without which lanes a pause has parted
	HandoverReach    Name = "handover-reach"     // ... without why it is not reached
	HandoverRation   Name = "handover-ration"    // ... without what it has left of its limits
	HandoverQueued   Name = "handover-queued"    // ... without which GRANTs are of which region
	HandoverExport   Name = "handover-export"    // a region is handed over without who was granted it
	HandoverOpState  Name = "handover-op-state"  // an operation is handed over as if it had not been posted
	HandoverRoom     Name = "handover-room"      // a ring is handed over as if the client had taken all of it
	HandoverTaken    Name = "handover-taken"     // ... as if what was taken and not released had not been taken
	HandoverOffset   Name = "handover-offset"    // imported memory is handed over without its place in its file
	HaltTimePasses   Name = "halt-time-passes"   // time goes on while the engine stands still
	FaultRefuses     Name = "fault-refuses"      // an error in what one process has keeps a daemon from being replaced
	FaultsApart      Name = "faults-apart"       // each process that cannot be taken over costs a pause of its own
	HaltCopies       Name = "halt-copies"        // operations within the host go on while the engine comes to a stand
	HaltChoresIn     Name = "halt-chores-in"     // chores that were begun are done while nobody is served
	HaltChoresLong   Name = "halt-chores-long"   // the end of chores is waited for without end
	RecessEndsLast   Name = "recess-ends-last"   // processes whose sessions were lost in a recess end while nobody is served
	OpsUncharged     Name = "ops-uncharged"      // the daemon's records of operations do not count in its cgroup
	RecordsUncharged Name = "records-uncharged"  // the daemon's records of what a process has do not count in its cgroup
	ExcessKept       Name = "excess-kept"        // all of a process goes over, however much it is
	LateAnswerKept   Name = "late-answer-kept"   // a session is handed over whose answer is still on its way
	ToolViolates     Name = "tool-violates"      // an rdsctl that does not read counts as a process that breaks the rules
	HomelessStays    Name = "homeless-stays"     // room for more peers is looked for when nobody waits for it any more
	LongStays        Name = "long-stays"         // how an operation was cut is kept when its message has ended
	PieceByLength    Name = "piece-by-length"    // whether an operation goes on in pieces depends on its length alone
	SocketFileTaken  Name = "socket-file-taken"  // a daemon that has handed over removes the control socket's file
	CountersByPlace  Name = "counters-by-place"  // statistics are taken over without that their names are read
	GateAjar         Name = "gate-ajar"          // a connection is still accepted once no more are to be

	// What an engine hands over.

	HandoverClock     Name = "handover-clock"     // an engine is handed over without its time
	HandoverDrains    Name = "handover-drains"    // ... without which addresses are drained
	HandoverHandles   Name = "handover-handles"   // ... without how often socket handles were used
	HandoverFreeing   Name = "handover-freeing"   // ... without which buffers are being freed
	HandoverLane      Name = "handover-lane"      // ... without the lanes of sockets
	HandoverCongested Name = "handover-congested" // ... without which sockets are full
	HandoverRefused   Name = "handover-refused"   // ... without which sockets refused for want of memory
	HandoverSpent     Name = "handover-spent"     // ... without which regions for one use had it
	HandoverMark      Name = "handover-mark"      // ... without which operations are pending
	HandoverShown     Name = "handover-shown"     // ... without which marks were published
	HandoverPin       Name = "handover-pin"       // ... without which sockets destinations have met
	HandoverRelief    Name = "handover-relief"    // ... without whom relief is to be told
	HandoverNotices   Name = "handover-notices"   // ... without which losses are to be told
	HandoverUngranted Name = "handover-ungranted" // ... without which cookies are to be granted
	HandoverLimit     Name = "handover-limit"     // ... without when messages are given up
	HandoverRun       Name = "handover-run"       // ... without which messages are runs
	HandoverCopied    Name = "handover-copied"    // ... without what operations on the same host have copied
	HandoverStatus    Name = "handover-status"    // ... without which statuses wait
	HandoverOver      Name = "handover-over"      // ... without what waits in overflow
	HandoverSteps     Name = "handover-steps"     // ... without which parts of runs were given back
	HandoverWaiters   Name = "handover-waiters"   // ... without who waits for a socket's room
	HandoverLost      Name = "handover-lost"      // a region whose key a device did not take stays granted

	// Runs.

	RunCountWrong      Name = "run-count-wrong"       // a header says one datagram more than its run has
	RunMergedForKernel Name = "run-merged-for-kernel" // what is left of a run goes to a kernel as one datagram
	RunLostAsOne       Name = "run-lost-as-one"       // a run that is lost counts as one datagram

	// Refusal.

	RefusedDropped   Name = "refused-dropped"    // a REFUSED message is not kept
	ReleasedEarly    Name = "released-early"     // a stopped port goes on before all it refused is known
	HeldOvertakes    Name = "held-overtakes"     // what was held back goes ahead of what was refused
	StopWanted       Name = "stop-wanted"        // a port that refuses is a reason to connect, even if nothing is to be sent to it
	AdoptedReturned  Name = "adopted-returned"   // what a former version left in the queue for a stopped port is given back one by one
	LookAtOnce       Name = "look-at-once"       // a release looks at all destinations that wait, in one turn
	StopsWalked      Name = "stops-walked"       // each refusal looks at all ports that have refused
	StoppedKept      Name = "stopped-kept"       // a connection keeps what it has not posted for a port that refuses
	KeptAtOnce       Name = "kept-at-once"       // a connection lets go at once of all that a port had refused
	TakenBackLast    Name = "taken-back-last"    // what a connection gives back waits behind what was submitted later
	NoSockNotSent    Name = "nosock-not-sent"    // nobody is told that there was no socket
	LostNotTold      Name = "lost-not-told"      // nobody is told what a restart of the peer lost
	CongestionStays  Name = "congestion-stays"   // a socket that closes leaves its port's congestion bit
	Incarnation      Name = "incarnation"        // a message meant for a port's former socket is delivered
	NotPinned        Name = "not-pinned"         // a destination leads to whoever is bound, not to the socket it met
	TakerUntold      Name = "taker-untold"       // nobody is told which socket took a long message that met a full event ring
	OvertakenInvalid Name = "overtaken-invalid"  // a Release that Close overtook is an error of the caller's
	LeftPortCongests Name = "left-port-congests" // a socket off its port still sets the port's congestion bit
	OwnerNotMeant    Name = "owner-not-meant"    // a message with operations goes to whoever is bound, not to who owns their memory
	CookieUnasked    Name = "cookie-unasked"     // a cookie is submitted before the destination is known to take one
	DestUnasked      Name = "dest-unasked"       // a message is submitted before the daemon has said whether it takes any for the destination
	SlotReusedEarly  Name = "slot-reused-early"  // a destination's slot is used again with messages pending
	WakeUpLost       Name = "wake-up-lost"       // the daemon does not look once more after it announced sleep
	ShareIgnored     Name = "share-ignored"      // a stuck destination gets all message ids and send memory of its process
	GainUnheard      Name = "gain-unheard"       // those who wait for send memory are not woken when there is more
	BindBehindClose  Name = "bind-behind-close"  // a socket whose client was closed during its bind hands out what came for it
	WakeUpKept       Name = "wake-up-kept"       // a receiver that was woken for another's message does not pass that on
	RequestOvertakes Name = "request-overtakes"  // a control request goes ahead of what was submitted before it

	// Opening again after the daemon's end.

	ReopenedClosed    Name = "reopened-closed"    // what is closed while the client opens again stays open at the next daemon
	ReopenedZeroCopy  Name = "reopened-zero-copy" // zero-copy cookies of messages that the old daemon had never come back
	ReopenedUnsettled Name = "reopened-unsettled" // an operation that the old daemon had in progress gets no status
	ReopenedUnread    Name = "reopened-unread"    // what was delivered and not received is dropped
	ReopenedIDs       Name = "reopened-ids"       // the next daemon is told of operations by the ids of the old one

	// Operations.

	MarkBeforeDrain   Name = "mark-before-drain"    // the high-water mark rises before the queue pair has drained
	OperationReplayed Name = "operation-replayed"   // after a reconnect an operation is posted again
	RefusedRunsAgain  Name = "refused-runs-again"   // an operation whose message was refused is posted again with it
	FenceMissing      Name = "fence-missing"        // the message does not wait for the READ ahead of it
	StatusTwice       Name = "status-twice"         // an operation that settled is reported again
	AtomicRunsTwice   Name = "atomic-runs-twice"    // a same-host atomic runs again in the next turn
	CarriedRunsAgain  Name = "carried-runs-again"   // the atomic of a retransmission that was received runs again
	CarriedUnreceived Name = "carried-unreceived"   // an atomic runs before its message counts as received
	CarriedRunsEarly  Name = "carried-runs-early"   // an atomic runs though its message is refused
	ResultForgotten   Name = "result-forgotten"     // the result of an atomic is not sent again after a break
	ResultUnneeded    Name = "result-unneeded"      // an ack without the result counts as success
	GrantUnchecked    Name = "grant-unchecked"      // rights and grantees are not looked at
	BoundsOffByOne    Name = "bounds-off-by-one"    // one byte behind a region counts as inside
	UseOnceIgnored    Name = "use-once-ignored"     // a use-once key goes on after its use
	RevokeDoesNotWait Name = "revoke-doesnt-wait"   // REVOKED is sent while operations on the key are in flight
	LanesNotFlushed   Name = "lanes-not-flushed"    // a key counts as given back when one lane has answered
	GrantOnLaneZero   Name = "grant-on-lane-zero"   // a GRANT does not go ahead of its socket's messages
	DeadGrantAgain    Name = "dead-grant-again"     // a GRANT of a released region goes out again after a break
	ExposedForGood    Name = "exposed-for-good"     // a lane on which something was granted once is not forgotten
	GrantTableShared  Name = "grant-table-shared"   // one user may take a peer's whole table of grants
	GrantErrorDropped Name = "grant-error-dropped"  // a message goes out though its cookie could not be granted
	NakNotTold        Name = "nak-not-told"         // nobody is told that the peer refused a grant
	IdleKeepsPlace    Name = "idle-keeps-place"     // a destination with nothing under way keeps its place among its user's
	OnceForMany       Name = "once-for-many"        // a region for one use is granted to several hosts
	UsedWhenRefused   Name = "used-when-refused"    // a region for one use ends with a message that is refused
	NobodyUnasked     Name = "nobody-unasked"       // messages behind one that found nobody do not wait to hear who took the first of them
	AnyoneUses        Name = "anyone-uses"          // a host ends a region for one use that is another host's to use
	RegrantAnyway     Name = "regrant-anyway"       // a restarted peer is sent a grant that cannot be made again
	UngrantedTwice    Name = "ungranted-twice"      // a cookie that waits is told of again with each restart of the peer
	TakenForgotten    Name = "taken-forgotten"      // a key taken back on one lane is forgotten though others are to say so
	LengthUnbounded   Name = "length-unbounded"     // only the library bounds what one operation moves
	PieceFailureLost  Name = "piece-failure-lost"   // an operation goes on though a piece of it has failed
	LimitLeavesPieces Name = "limit-leaves-pieces"  // an operation whose time is up is DROPPED while pieces of it are on their way
	EndUnblamed       Name = "end-unblamed"         // large packets are not blamed for a set-up that the peer ends first
	UsedStaysOpen     Name = "used-stays-open"      // the target leaves memory for one use open when it was used
	PieceIsUse        Name = "piece-is-use"         // each piece of an operation is a use of its own of a key for one use
	EndUnbounded      Name = "end-unbounded"        // what a process had is ended in one turn, however much it is
	ChoresFirst       Name = "chores-first"         // what is no chore waits until the chores leave some of a turn
	RefusedForgotten  Name = "refused-forgotten"    // who refused a grant of a region that is being released is not waited for
	VoidForgotten     Name = "void-forgotten"       // what a former instance of a peer was granted counts until its turn comes
	MetKept           Name = "met-kept"             // a destination keeps to the socket that it met before its peer's restart
	QuotaNotGivenBack Name = "quota-not-given-back" // operations that ended still count

	// Who may do what, and how much.

	LoopbackTrusted            Name = "loopback-trusted"              // loopback is a peer of a daemon that other hosts reach
	LocalTrusted               Name = "local-trusted"                 // a network in peers.allow allows this host's addresses in it
	DescriptorsClosedInSession Name = "descriptors-closed-in-session" // a session waits for the close of what its process sent
	HolesUncharged             Name = "holes-uncharged"               // memory with holes does not count in the daemon's cgroup
	UnmapLocks                 Name = "unmap-locks"                   // a planned restart waits while memory that was freed is unmapped
	FreedKept                  Name = "freed-kept"                    // memory that a process keeps mapped stays when it counts no more
	HolesUnseen                Name = "holes-unseen"                  // memory that the daemon made may have holes
	HolesAgain                 Name = "holes-again"                   // each process of a user can have its holes once
	HandoverHoles              Name = "handover-holes"                // a successor admits users who wait because of holes
	HandoverLong               Name = "handover-long"                 // a successor does not look for holes that its predecessor was to look for
	SearchWaits                Name = "search-waits"                  // the search for holes waits while a process changes its memory file
	RestAfterFound             Name = "rest-after-found"              // the search for holes rests after it has found some
	HolesTwice                 Name = "holes-twice"                   // holes of a session that ends already are another session's
	GoneMarked                 Name = "gone-marked"                   // holes of a process that has closed its connection count as those of another one
	ImportHoles                Name = "import-holes"                  // the daemon fills holes of what it imports
	HolesBack                  Name = "holes-back"                    // a user whose process has punched holes comes back at once
	UnreadUnbounded            Name = "unread-unbounded"              // descriptors that nobody receives have no limit
	UnreadPiledUp              Name = "unread-piled-up"               // a process gets more descriptors while it has not received others
	RefsEndSession             Name = "refs-end-session"              // an answer whose descriptors the kernel does not send ends the session
	HandoverUnread             Name = "handover-unread"               // a successor does not know what processes have not received
	UnreadLetGo                Name = "unread-let-go"                 // a hand-over names a connection whose process receives what it was sent, and that is closed
	HandoverUnreadMost         Name = "handover-unread-most"          // a successor counts as many descriptors unread as there can be
	UnreadUncounted            Name = "unread-uncounted"              // a connection that ends with descriptors unread counts for nobody
	DescriptorsTakenInSession  Name = "descriptors-taken-in-session"  // a session receives and closes the descriptor of an import itself
	WritableGiven              Name = "writable-given"                // processes get memory that they may only read with a descriptor to write
	HugeOfAnyone               Name = "huge-of-anyone"                // any user may have huge pages mapped, which a hole can take away
	PartialUncharged           Name = "partial-uncharged"             // a message that was begun takes memory without limit
	RecessAnswers              Name = "recess-answers"                // a recess does not wait for answers on their way
	HandoverImports            Name = "handover-imports"              // a session is handed over without whether its process may import
	HandoverJournal            Name = "handover-journal"              // a daemon is handed over without its recent events
	RecessUnheeded             Name = "recess-unheeded"               // a session that ends a request in a recess reads on
	RecessEndsUnread           Name = "recess-ends-unread"            // a recess ends sessions whose processes have asked for more before they read an answer
	PopulateAtOnce             Name = "populate-at-once"              // any number of sessions make memory at a time
	UpdatesUncharged           Name = "updates-uncharged"             // a peer changes its TLS key as often as it likes
	AnyOwner                   Name = "any-owner"                     // an operation for memory of its destination runs on that of another socket
	SubordinatesApart          Name = "subordinates-apart"            // a subordinate uid counts as a user of its own
	SourceTakesAll             Name = "source-takes-all"              // one address takes all places for connections in set-up
	MemoryUnbroken             Name = "memory-unbroken"               // memory is made to its end although its request is broken off
	RequestForgotten           Name = "request-forgotten"             // a request that was broken off is not carried out again
	HandoverRequest            Name = "handover-request"              // a session is handed over without its request that was broken off
	RecessUnbounded            Name = "recess-unbounded"              // a recess waits for every session
	AgainOpen                  Name = "again-open"                    // the descriptor of a request that was handed over stays open if its session ends first
	ToolUntold                 Name = "tool-untold"                   // an rdsctl that reads slowly in a planned restart is not told why it ends
	LastNoRoom                 Name = "last-no-room"                  // a process with a full queue is not told why its session ends
	SendNotTried               Name = "send-not-tried"                // an answer whose time passes before the first attempt to send it ends its session
	BodyAwaited                Name = "body-awaited"                  // a client of the metrics that does not send the body of its request keeps its place
	RingsFirst                 Name = "rings-first"                   // the rings of a client are emptied before its process is told why its session ends
	EndMisread                 Name = "end-misread"                   // a library takes rings that are emptied at the end of its session for a broken contract
	LogWaits                   Name = "log-waits"                     // whoever logs waits for the reader of the log

	// A client's events.

	RoomNotRung         Name = "room-not-rung"         // a sleeping daemon does not ask to be rung for room in an event ring
	ReceiveShareIgnored Name = "receive-share-ignored" // one socket may take all receive memory of its process
	HandleReused        Name = "handle-reused"         // a new socket has the handle that a closed one had
	MarkForgotten       Name = "mark-forgotten"        // a mark that rises while statuses of its cell wait stays behind for ever, if it had not risen when they began to
	MarkWaitsForAll     Name = "mark-waits-for-all"    // the high-water mark waits until no status of the process waits for room

	// Runs.

	RunUnchecked     Name = "run-unchecked"      // a run is delivered whatever its frames are
	RunRefusedPartly Name = "run-refused-partly" // of a run that is refused the first datagram is delivered
	HalfReadTwice    Name = "half-read-twice"    // what was read of a run counts again when all of it was read
	HalfReadKept     Name = "half-read-kept"     // nothing of a run is given back before all of it was read
	RunOverNotice    Name = "run-over-notice"    // a run is appended to after a notice about its destination
	RunAppendedLate  Name = "run-appended-late"  // what is appended after the daemon has taken the run counts as sent
	RunOvertaken     Name = "run-overtaken"      // datagrams behind an operation go into the run ahead of it

	// The provider.

	CRCUnchecked Name = "crc-unchecked" // frames with a wrong CRC are taken
)

// Names lists them all, in the order of their declaration.
func Names() []Name {
	return []Name{
		UnreachedUntold, KernelBelieved, CrossingUndecided, CrossingCounts, SequenceReset, DuplicatesTaken, TCPDuplicateTaken, TCPAckUnheard,
		TCPLateUnread, TCPCookieTaken, TCPDialedEarly, TCPEndedArrives, TCPPongKept, AckBeforeQueueing, AckCoversNotice, NoGate, WrongInstance,
		LastCredit, CancelEarly, PeersStay, PastForgotten, LaneForgotten, SilenceIgnored, LargeLostForEver, OutageNarrows, PauseUnnoticed, HaltBreaksOps,
		HaltTold, HaltRequest, HandoverReceived, HandoverPosted, HandoverStopped, HandoverAnswered, HandoverGrants, HandoverTCPSeen, HandoverTCPAgain,
		HandoverUs, HandoverMet, HandoverPast, HandoverUntold, HandoverWarned, HandoverParted, HandoverReach, HandoverRation, HandoverQueued,
		HandoverExport, HandoverOpState, HandoverRoom, HandoverTaken, HandoverOffset, HaltTimePasses, FaultRefuses, FaultsApart, HaltCopies,
		HaltChoresIn, HaltChoresLong, RecessEndsLast, RecordsUncharged, OpsUncharged, ExcessKept, LateAnswerKept, ToolViolates, HomelessStays, LongStays,
		PieceByLength, SocketFileTaken, CountersByPlace, GateAjar, HandoverClock, HandoverDrains, HandoverHandles, HandoverFreeing, HandoverLane,
		HandoverCongested, HandoverRefused, HandoverSpent, HandoverMark, HandoverShown, HandoverPin, HandoverRelief, HandoverNotices, HandoverUngranted,
		HandoverLimit, HandoverRun, HandoverCopied, HandoverStatus, HandoverOver, HandoverSteps, HandoverWaiters, HandoverLost, RunCountWrong,
		RunMergedForKernel, RunLostAsOne, RefusedDropped, ReleasedEarly, HeldOvertakes, StopWanted, AdoptedReturned, LookAtOnce, StopsWalked,
		StoppedKept, KeptAtOnce, TakenBackLast, NoSockNotSent, LostNotTold, CongestionStays, Incarnation, NotPinned, TakerUntold, OvertakenInvalid,
		LeftPortCongests, OwnerNotMeant, CookieUnasked, DestUnasked, SlotReusedEarly, WakeUpLost, ShareIgnored, GainUnheard, BindBehindClose, WakeUpKept,
		RequestOvertakes, ReopenedClosed, ReopenedZeroCopy, ReopenedUnsettled, ReopenedUnread, ReopenedIDs, MarkBeforeDrain, OperationReplayed,
		RefusedRunsAgain, FenceMissing, StatusTwice, AtomicRunsTwice, CarriedRunsAgain, CarriedUnreceived, CarriedRunsEarly, ResultForgotten,
		ResultUnneeded, GrantUnchecked, BoundsOffByOne, UseOnceIgnored, RevokeDoesNotWait, LanesNotFlushed, GrantOnLaneZero, DeadGrantAgain,
		ExposedForGood, GrantTableShared, GrantErrorDropped, NakNotTold, IdleKeepsPlace, OnceForMany, UsedWhenRefused, NobodyUnasked, AnyoneUses,
		RegrantAnyway, UngrantedTwice, TakenForgotten, LengthUnbounded, PieceFailureLost, LimitLeavesPieces, EndUnblamed, UsedStaysOpen, PieceIsUse,
		EndUnbounded, ChoresFirst, RefusedForgotten, VoidForgotten, MetKept, QuotaNotGivenBack, LoopbackTrusted, LocalTrusted,
		DescriptorsClosedInSession, HolesUncharged, UnmapLocks, FreedKept, HolesUnseen, HolesAgain, HandoverHoles, HandoverLong, SearchWaits,
		RestAfterFound, HolesTwice, GoneMarked, ImportHoles, HolesBack, UnreadUnbounded, UnreadPiledUp, RefsEndSession, HandoverUnread, UnreadLetGo,
		HandoverUnreadMost, UnreadUncounted, DescriptorsTakenInSession, WritableGiven, HugeOfAnyone, PartialUncharged, RecessAnswers, HandoverImports,
		HandoverJournal, RecessUnheeded, RecessEndsUnread, PopulateAtOnce, UpdatesUncharged, AnyOwner, SubordinatesApart, SourceTakesAll, MemoryUnbroken,
		RequestForgotten, HandoverRequest, RecessUnbounded, AgainOpen, ToolUntold, LastNoRoom, SendNotTried, BodyAwaited, RingsFirst, EndMisread,
		LogWaits, RoomNotRung, ReceiveShareIgnored, HandleReused, MarkForgotten, MarkWaitsForAll, RunUnchecked, RunRefusedPartly, HalfReadTwice,
		HalfReadKept, RunOverNotice, RunAppendedLate, RunOvertaken, CRCUnchecked,
	}
}
