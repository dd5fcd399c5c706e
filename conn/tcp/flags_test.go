package tcp

import "flag"

var (
	worldSeeds = flag.Int("tcp.seeds", 6, "seeds per case")
	worldSeed  = flag.Uint64("tcp.seed", 0, "run this seed alone")
)
