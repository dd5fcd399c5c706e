package main

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// groups returns all numbers of the header.
func groups() []group {
	p := shm.DefaultParams()
	return []group{
		{"Control frames.", append([]number{
			{"IPC_MAGIC", ipc.Magic}, {"IPC_VERSION", ipc.Version}, {"IPC_MAX_FRAME", ipc.MaxFrame}, {"IPC_MAX_FDS", ipc.MaxFDs},
			{"IPC_MAX_TEXT", ipc.MaxText}, {"IPC_MAX_NAME", ipc.MaxName},
			{"IPC_ROLE_CLIENT", uint64(ipc.RoleClient)}, {"IPC_ROLE_CTL", uint64(ipc.RoleCtl)}, {"IPC_FEATURE_REFUSES", ipc.FeatureRefuses},
			{"IPC_FEATURE_ADDRS", ipc.FeatureAddrs}, {"IPC_FEATURE_IMPORT", ipc.FeatureImport}, {"IPC_FEATURE_NOTIFY", ipc.FeatureNotify}, {"IPC_FEATURE_ANYBODY", ipc.FeatureAnybody}, {"IPC_FEATURES", ipc.Features}, {"IPC_MAX_ADDRS", ipc.MaxAddrs}}, types()...)},
		{"The segment.", append([]number{
			{"SHM_MAGIC", shm.Magic}, {"SHM_VERSION", shm.Version}, {"SHM_ENTRY_SIZE", shm.EntrySize}, {"SHM_UNIT", shm.Unit},
			{"SHM_WINDOW_SIZE", shm.WindowSize}, {"SHM_PAGE_SIZE", shm.PageSize}, {"SHM_MAX_RING_ENTRIES", shm.MaxRingEntries},
			{"SHM_MAX_TABLE", shm.MaxTable}, {"SHM_MAX_WINDOWS", shm.MaxWindows}, {"SHM_MAX_SOCKS", shm.MaxSocks}},
			places(shm.Header())...)},
		{"Sizes of segment and table with the default parameters, to test what C computes.", append([]number{
			{"SHM_DEFAULT_SEGMENT_SIZE", uint64(shm.SegmentSize(p))}, {"SHM_DEFAULT_TABLE_SIZE", uint64(shm.TableSize(p.Slots, p.Cells))}},
			places(shm.Parts(p))...)},
		{"Default parameters.", []number{
			{"SHM_DEFAULT_SUB_ENTRIES", uint64(p.SubEntries)}, {"SHM_DEFAULT_EVENT_ENTRIES", uint64(p.EventEntries)},
			{"SHM_DEFAULT_MAX_MSGS", uint64(p.MaxMsgs)}, {"SHM_DEFAULT_MAX_RX", uint64(p.MaxRx)},
			{"SHM_DEFAULT_SLOTS", uint64(p.Slots)}, {"SHM_DEFAULT_CELLS", uint64(p.Cells)},
			{"SHM_DEFAULT_SEND_WINDOWS", uint64(p.SendWindows)}, {"SHM_DEFAULT_RECV_WINDOWS", uint64(p.RecvWindows)},
			{"SHM_DEFAULT_BUF", shm.DefaultBuf}}},
		{"Announcements of sleep.", []number{
			{"SHM_AWAKE", shm.Awake}, {"SHM_ASLEEP", shm.Asleep}, {"SHM_ASLEEP_FOR_EVENTS", shm.AsleepForEvents},
			{"SHM_ASLEEP_FOR_ROOM", shm.AsleepForRoom}}},
		{"Descriptors.", descriptors()},
		{"Events.", events()},
		{"Runs.", []number{
			{"SHM_RUN_HEAD", shm.RunHead}, {"SHM_RUN_STEPS", shm.RunSteps}, {"SHM_RX_STEP", shm.RxStep},
			{"SHM_RUN_DATAGRAM", uint64(shm.RunState(0).Append(0)) - uint64(shm.RunState(0).Append(0).Len())},
			{"SHM_RUN_PAYLOAD", (uint64(shm.RunState(0).Append(4)) - uint64(shm.RunState(0).Append(0)) - 4) / 4},
			{"SHM_RUN_ACK_NOW", uint64(shm.RunAckNow)}, {"SHM_RUN_CLOSED", uint64(shm.RunClosed)}}},
		{"Operations, rights and limits.", append(operations(), limits()...)},
	}
}

func descriptors() []number {
	return []number{
		{"SHM_KIND_SEND", uint64(shm.KindSend)}, {"SHM_KIND_SEND_OP", uint64(shm.KindSendOp)},
		{"SHM_KIND_OPEN_DEST", uint64(shm.KindOpenDest)}, {"SHM_KIND_CLOSE_DEST", uint64(shm.KindCloseDest)},
		{"SHM_KIND_CANCEL", uint64(shm.KindCancel)}, {"SHM_KIND_RUN", uint64(shm.KindRun)},
		{"SHM_SUB_ACK_NOW", uint64(shm.SubAckNow)}, {"SHM_SUB_TWO_OPS", uint64(shm.SubTwoOps)}, {"SHM_SUB_FROM_BUF", uint64(shm.SubFromBuf)},
		{"SHM_SUB_NOTIFY", uint64(shm.SubNotify)}, {"SHM_SUB_TRACEPARENT", uint64(shm.SubTraceparent)}, {"SHM_NO_SLOT", uint64(shm.NoSlot)}, {"SHM_DEST_ANYBODY", uint64(shm.DestAnybody)},
		{"SHM_WANT_RELIEF", uint64(shm.WantRelief)}, {"SHM_WANT_CROWDED", uint64(shm.WantCrowded)},
		{"SHM_SLOT_NO_RDMA", uint64(shm.SlotNoRDMA)},
	}
}

func events() []number {
	return []number{
		{"SHM_EV_DATA", uint64(shm.EvData)}, {"SHM_EV_STATUS", uint64(shm.EvStatus)}, {"SHM_EV_NOTICE", uint64(shm.EvNotice)},
		{"SHM_EV_BARRIER", uint64(shm.EvBarrier)}, {"SHM_EV_RELIEF", uint64(shm.EvRelief)}, {"SHM_EV_CROWDED", uint64(shm.EvCrowded)},
		{"SHM_EV_OVERRUN", uint64(shm.EvOverrun)}, {"SHM_EVENT_RUN", uint64(shm.EventRun)}, {"SHM_EVENT_TRACEPARENT", uint64(shm.EventTraceparent)},
		{"SHM_TRACEPARENT_LEN", wire.TraceparentLen},
		{"SHM_NOTICE_LOST", uint64(shm.NoticeLost)}, {"SHM_NOTICE_NO_SOCKET", uint64(shm.NoticeNoSocket)},
		{"SHM_NOTICE_PEER_DOWN", uint64(shm.NoticePeerDown)}, {"SHM_NOTICE_PEER_UP", uint64(shm.NoticePeerUp)},
		{"SHM_NOTICE_GAVE_UP", uint64(shm.NoticeGaveUp)}, {"SHM_NOTICE_UNREACHABLE", uint64(shm.NoticeUnreachable)},
		{"SHM_NOTICE_NOT_GRANTED", uint64(shm.NoticeNotGranted)},
		{"SHM_REACH_FORBIDDEN", uint64(shm.ReachForbidden)}, {"SHM_REACH_NO_ROUTE", uint64(shm.ReachNoRoute)},
		{"SHM_REACH_REFUSED", uint64(shm.ReachRefused)}, {"SHM_REACH_TIMEOUT", uint64(shm.ReachTimeout)},
		{"SHM_REACH_REJECTED", uint64(shm.ReachRejected)}, {"SHM_REACH_OTHER", uint64(shm.ReachOther)},
	}
}

func operations() []number {
	return []number{
		{"ABI_OP_WRITE", uint64(abi.OpWrite)}, {"ABI_OP_READ", uint64(abi.OpRead)},
		{"ABI_OP_FETCH_ADD", uint64(abi.OpFetchAdd)}, {"ABI_OP_CMP_SWAP", uint64(abi.OpCmpSwap)},
		{"ABI_FLAG_NOTIFY", uint64(abi.FlagNotify)}, {"ABI_FLAG_SILENT", uint64(abi.FlagSilent)}, {"ABI_FLAG_REPORT", uint64(abi.FlagReport)},
		{"ABI_FLAG_OWNER", uint64(abi.FlagOwner)},
		{"ABI_RIGHT_READ", uint64(abi.RightRead)}, {"ABI_RIGHT_WRITE", uint64(abi.RightWrite)}, {"ABI_RIGHT_ATOMIC", uint64(abi.RightAtomic)},
		{"ABI_USE_ONCE", uint64(abi.UseOnce)}, {"ABI_OPEN", uint64(abi.Open)},
		{"ABI_STATUS_SUCCESS", uint64(abi.StatusSuccess)}, {"ABI_STATUS_REMOTE_ERROR", uint64(abi.StatusRemoteError)},
		{"ABI_STATUS_CANCELED", uint64(abi.StatusCanceled)}, {"ABI_STATUS_DROPPED", uint64(abi.StatusDropped)},
		{"ABI_STATUS_OTHER_ERROR", uint64(abi.StatusOtherError)}, {"ABI_STATUS_UNKNOWN", uint64(abi.StatusUnknown)},
	}
}
