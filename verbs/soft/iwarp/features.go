package iwarp

// Features is what two ends of this implementation tell each other, behind the
// consumer's private data in the MPA frames. iWARP has no place for it: RFC 7306
// section 1.1 leaves it to the layer above to find out about its messages. A
// consumer that does not know of it sees longer private data, as InfiniBand's
// connection manager makes them, too.
type Features struct {
	Immediate bool  // Immediate Data messages are understood
	Atomics   bool  // Atomic Requests are served
	RNRRetry  uint8 // how often the sender's messages are tried again: 0 to 6; 7 without limit
	Reserve   uint8 // part of IRD that is for fences, not for the consumer
	ParkMsgs  uint8 // messages that may wait for a receive without stopping the stream, in units of 16
	ParkKiB   uint16
}

// FeaturesLen is the length of the trailer.
const FeaturesLen = 16

const (
	featuresMagic  = "rdsd/RC1"
	featImmediate  = 1
	featAtomics    = 2
	featuresFields = len(featuresMagic)
)

// Append appends the trailer to b.
func (f *Features) Append(b []byte) []byte {
	var flags byte
	if f.Immediate {
		flags |= featImmediate
	}
	if f.Atomics {
		flags |= featAtomics
	}
	b = append(b, featuresMagic...)
	return append(b, flags, f.RNRRetry, f.Reserve, f.ParkMsgs, byte(f.ParkKiB>>8), byte(f.ParkKiB), 0, 0)
}

// SplitFeatures takes the trailer off private data. Without a trailer ok is false,
// and all of the data is the consumer's.
func SplitFeatures(private []byte) (consumer []byte, f Features, ok bool) {
	n := len(private) - FeaturesLen
	if n < 0 || string(private[n:n+featuresFields]) != featuresMagic {
		return private, f, false
	}
	t := private[n+featuresFields:]
	f = Features{
		Immediate: t[0]&featImmediate != 0, Atomics: t[0]&featAtomics != 0,
		RNRRetry: t[1] & 7, Reserve: t[2], ParkMsgs: t[3], ParkKiB: uint16(t[4])<<8 | uint16(t[5]),
	}
	return private[:n:n], f, true
}
