package conformance

import "testing"

func groupI() []statement {
	return []statement{
		{n: 143, kind: "k", by: byTest, text: "listens on 16385; connections settle from the smaller to the larger address", check: tcpTest("TestTCPDirection", "TestTCPAsked")},
		{n: 144, kind: "k", by: byTest, text: "the larger side's own connect has the peer connect back, and its data is delivered", check: tcpTest("TestTCPDirection")},
		{n: 145, kind: "k", by: byTest, text: "both sides sending at once end with one TCP connection per lane, nothing lost or twice", check: tcpTest("TestTCPWorld")},
		{n: 146, kind: "k", by: byTest, text: "a connection from a larger address is reset without an RDS byte", check: tcpTest("TestTCPAsked")},
		{n: 147, kind: "k", by: byTest, text: "a header in 48 segments is parsed, and many messages in one", check: tcpTest("TestTCPHostile")},
		{n: 148, kind: "k", by: byTest, text: "the congestion map follows each connect", check: tcpTest("TestTCPDirection")},
		{n: 149, kind: "k", by: byTest, text: "what TCP has not acked is sent again, flagged; what it has is not", check: tcpTest("TestTCPAcks")},
		{n: 150, kind: "k", later: laterVM, text: "a daemon killed and started again: no duplicates, and its sends arrive"},
		{n: 151, kind: "k", later: laterVM, text: "a silent idle peer is found out in 25 to 35 s"},
		{n: 152, kind: "r", by: byTest, text: "no close with unread data", check: tcpTest("TestTCPWorld")},
		{n: 153, kind: "k", later: laterVM, text: "eight lanes with a kernel peer"},
		{n: 154, kind: "r", by: byTest, text: "lanes by source port with new kernels, by order of arrival with old ones", check: tcpTest("TestTCPLostLanes", "TestTCPWorld")},
		{n: 155, kind: "r", later: laterVM, text: "a black-holed peer is found out within a configured time"},
	}
}

// tcpTest runs tests of package conn/tcp that show a statement.
func tcpTest(names ...string) func(*testing.T, *env) {
	return func(t *testing.T, _ *env) { goTest(t, "../../conn/tcp", names...) }
}

// connTest runs tests of package conn that show a statement. The tests with a real kernel are in
// test/vmlab/rdstcp and test/vmlab/rdsib.
func connTest(names ...string) func(*testing.T, *env) {
	return func(t *testing.T, _ *env) { goTest(t, "../../conn", names...) }
}

func groupJ() []statement {
	return []statement{
		{n: 156, kind: "k", later: laterIB, text: "CM listens on 18634 and 16385; private data of 32 and 56 bytes"},
		{n: 157, kind: "k", by: byTest, text: "3.1 is agreed with kernels, 4.1 answered without a fragment size", check: connTest("TestKernelHandshake")},
		{n: 158, kind: "k", by: byTest, text: "a wrong version or no private data is rejected with 1", check: connTest("TestPrivateDataRejected")},
		{n: 159, kind: "k", by: byTest, text: "a reject is followed by back-off and another try", check: connTest("TestBackoff")},
		{n: 160, kind: "k", by: byTest, text: "a request while up drops the old connection, the next succeeds", check: connTest("TestKernelCrossing")},
		{n: 161, kind: "k", by: byTest, text: "crossing connects converge", check: connTest("TestKernelCrossing")},
		{n: 162, kind: "k", by: byTest, text: "fragments of 4096 bytes", check: connTest("TestKernelFragments")},
		{n: 163, kind: "k", by: byTest, text: "the last fragment and acks are solicited", check: connTest("TestKernelFragments", "TestKernelAcks")},
		{n: 164, kind: "k", by: byTest, text: "fragments that do not match drop the connection", check: connTest("TestKernelHostile")},
		{n: 165, kind: "r", later: laterIB, text: "receives are posted before connect and accept"},
		{n: 166, kind: "k", by: byTest, text: "credits off: h_credit 0; on: never beyond the peer's, no deadlock", check: connTest("TestKernelFragments", "TestLastCredit", "TestCreditOverrun")},
		{n: 167, kind: "k", by: byTest, text: "the send ring never overflows", check: connTest("TestKernelMany")},
		{n: 168, kind: "r", by: byTest, text: "private data that claims another address is rejected", check: connTest("TestPrivateDataRejected")},
		{n: 169, kind: "r", by: byTest, text: "ack_seq in private data saves retransmissions", check: connTest("TestKernelReconnect")},
	}
}
