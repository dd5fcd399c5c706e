package main

import "github.com/rdsd/rdsd/internal/mutant"

// check is what has to catch a variant.
type check struct {
	variant mutant.Name
	pkg     string // directory
	test    string // path of the test
	args    []string
	short   bool // one of the five of -short
}

var checks = []check{
	{variant: mutant.CrossingUndecided, pkg: "conn", test: "TestCrossingConnects"},
	{variant: mutant.SequenceReset, pkg: "conn", test: "TestWorld/breaks"},
	{variant: mutant.DuplicatesTaken, pkg: "conn", test: "TestReceive"},
	{variant: mutant.TCPDuplicateTaken, pkg: "conn", test: "TestTCPHostile"},
	{variant: mutant.TCPAckUnheard, pkg: "conn", test: "TestTCPAckUnheard"},
	{variant: mutant.TCPLateUnread, pkg: "conn", test: "TestTCPWorld"},
	{variant: mutant.TCPCookieTaken, pkg: "conn", test: "TestTCPEnds"},
	{variant: mutant.AckBeforeQueueing, pkg: "conn", test: "TestWorld/breaks"},
	{variant: mutant.AckCoversNotice, pkg: "conn", test: "TestAckWaitsForNotice"},
	{variant: mutant.NoGate, pkg: "conn", test: "TestGate"},
	{variant: mutant.WrongInstance, pkg: "conn", test: "TestAckOfAnotherLife"},
	{variant: mutant.LastCredit, pkg: "conn", test: "TestLastCredit", short: true},
	{variant: mutant.CancelEarly, pkg: "conn", test: "TestCancelHalfSent"},
	{variant: mutant.KernelBelieved, pkg: "conn", test: "TestKernelNotConfigured"},
	{variant: mutant.UnreachedUntold, pkg: "internal/daemon", test: "TestUnreachableTold"},
	{variant: mutant.PeersStay, pkg: "internal/sim", test: "TestSimChurn"},
	{variant: mutant.PeersStay, pkg: "internal/daemon", test: "TestPeersChurn"},
	{variant: mutant.PastForgotten, pkg: "internal/sim", test: "TestForgotten"},
	{variant: mutant.LaneForgotten, pkg: "internal/daemon", test: "TestLaneForgotten"},
	{variant: mutant.SilenceIgnored, pkg: "internal/sim", test: "TestBlackHole"},

	{variant: mutant.RefusedDropped, pkg: "conn", test: "TestRefused"},
	{variant: mutant.ReleasedEarly, pkg: "conn", test: "TestWorld/refusals"},
	{variant: mutant.HeldOvertakes, pkg: "conn", test: "TestWorld/refusals"},
	{variant: mutant.NoSockNotSent, pkg: "conn", test: "TestSearch/no_socket"},
	{variant: mutant.LostNotTold, pkg: "internal/sim", test: "TestLoss"},
	{variant: mutant.CongestionStays, pkg: "internal/daemon", test: "TestCancelWhileRefused"},
	{variant: mutant.Incarnation, pkg: "internal/daemon", test: "TestIncarnation"},
	{variant: mutant.TakerUntold, pkg: "internal/daemon", test: "TestWholeWithoutRoom"},
	{variant: mutant.OvertakenInvalid, pkg: "rds", test: "TestReleaseOvertaken"},
	{variant: mutant.LeftPortCongests, pkg: "internal/daemon", test: "TestOverrunLeavesPort"},
	{variant: mutant.LeftPortCongests, pkg: "internal/sim", test: "TestSimOverrun"},
	{variant: mutant.CongestionStays, pkg: "internal/sim", test: "TestSimOverrun"},
	{variant: mutant.OwnerNotMeant, pkg: "internal/daemon", test: "TestOperationMeansOwner"},
	{variant: mutant.CookieUnasked, pkg: "rds", test: "TestCookieNotTaken"},
	{variant: mutant.DestUnasked, pkg: "rds", test: "TestDestinationAsked"},
	{variant: mutant.NotPinned, pkg: "internal/sim", test: "TestBoundAgain"},
	{variant: mutant.SlotReusedEarly, pkg: "rds", test: "TestPendingKeepsSlot"},
	{variant: mutant.WakeUpLost, pkg: "internal/daemon", test: "TestPark", short: true},
	{variant: mutant.ShareIgnored, pkg: "rds", test: "TestStuckDestinations"},
	{variant: mutant.WakeUpKept, pkg: "rds", test: "TestWakeUpForAnother"},
	{variant: mutant.RequestOvertakes, pkg: "internal/daemon", test: "TestRequestsBehindRing"},

	{variant: mutant.MarkBeforeDrain, pkg: "conn", test: "TestWorld/breaks", short: true},
	{variant: mutant.OperationReplayed, pkg: "conn", test: "TestSearch/atomic_and_break"},
	{variant: mutant.RefusedRunsAgain, pkg: "conn", test: "TestRefusedOperation"},
	{variant: mutant.FenceMissing, pkg: "conn", test: "TestOperationBatch"},
	{variant: mutant.StatusTwice, pkg: "rdmaop", test: "TestEveryPair"},
	{variant: mutant.AtomicRunsTwice, pkg: "internal/daemon", test: "TestAtomics"},
	{variant: mutant.GrantUnchecked, pkg: "rdmaop", test: "TestCheck", short: true},
	{variant: mutant.BoundsOffByOne, pkg: "rdmaop", test: "TestCheck"},
	{variant: mutant.UseOnceIgnored, pkg: "rdmaop", test: "TestUseOnce"},
	{variant: mutant.RevokeDoesNotWait, pkg: "rdmaop", test: "TestRevoke", short: true},
	{variant: mutant.LanesNotFlushed, pkg: "internal/daemon", test: "TestRevokeAcrossLanes"},
	{variant: mutant.GrantOnLaneZero, pkg: "internal/daemon", test: "TestGrantInItsLane"},
	{variant: mutant.GrantTableShared, pkg: "internal/daemon", test: "TestGrantTableShared"},
	{variant: mutant.GrantTableShared, pkg: "internal/sim", test: "TestSimGrants"},
	{variant: mutant.GrantErrorDropped, pkg: "internal/sim", test: "TestSimGrants"},
	{variant: mutant.NakNotTold, pkg: "internal/sim", test: "TestSimGrants"},
	{variant: mutant.GrantErrorDropped, pkg: "internal/daemon", test: "TestGranteesTold"},
	{variant: mutant.NakNotTold, pkg: "internal/daemon", test: "TestGrantRefusedByPeer"},
	{variant: mutant.IdleKeepsPlace, pkg: "internal/daemon", test: "TestIdleDestinationsGiveWay"},
	{variant: mutant.UsedWhenRefused, pkg: "internal/daemon", test: "TestUseOnceRefused"},
	{variant: mutant.NobodyUnasked, pkg: "internal/daemon", test: "TestNobodyThenTwo"},
	{variant: mutant.AnyoneUses, pkg: "internal/daemon", test: "TestUseOnceOfAnother"},
	{variant: mutant.RegrantAnyway, pkg: "internal/daemon", test: "TestUseOnceRestartWaiting"},
	{variant: mutant.TurnKept, pkg: "internal/daemon", test: "TestPlaceLeftInTurn"},
	{variant: mutant.OnceForMany, pkg: "internal/daemon", test: "TestUseOnceOneHost"},
	{variant: mutant.TakenForgotten, pkg: "internal/daemon", test: "TestTakenOnTwoLanes"},
	{variant: mutant.LengthUnbounded, pkg: "internal/daemon", test: "TestOperationLength"},
	{variant: mutant.EndUnbounded, pkg: "internal/daemon", test: "TestEndsInTurns"},
	{variant: mutant.QuotaNotGivenBack, pkg: "internal/daemon", test: "TestOperationQuota"},

	{variant: mutant.LoopbackTrusted, pkg: "internal/config", test: "TestPeersAllowed"},
	{variant: mutant.SourceTakesAll, pkg: "verbs/soft", test: "TestHandshakeShares"},
	{variant: mutant.PopulateAtOnce, pkg: "internal/daemon", test: "TestAllocationStorm"},
	{variant: mutant.UpdatesUncharged, pkg: "verbs/soft/tls13", test: "TestUpdateFlood"},
	{variant: mutant.PartialUncharged, pkg: "internal/daemon", test: "TestUnfinishedMessages"},
	{variant: mutant.DescriptorsClosedInSession, pkg: "internal/ipc", test: "TestLingeringDescriptors"},

	{variant: mutant.RoomNotRung, pkg: "internal/daemon", test: "TestRingForRoom"},
	{variant: mutant.HandleReused, pkg: "internal/daemon", test: "TestSocketHandles"},
	{variant: mutant.HandleReused, pkg: "internal/sim", test: "TestBoundInTurn/messages"},
	{variant: mutant.HandleReused, pkg: "internal/sim", test: "TestBoundInTurn/statuses"},
	{variant: mutant.ReceiveShareIgnored, pkg: "internal/daemon", test: "TestUnreadSockets"},
	{variant: mutant.MarkWaitsForAll, pkg: "internal/sim", test: "TestSimFlood"},
	{variant: mutant.MarkWaitsForAll, pkg: "internal/daemon", test: "TestMarkBesideFlood"},

	{variant: mutant.CRCUnchecked, pkg: "verbs/soft", test: "TestBadCRC"},
}
