package conn

import "flag"

// -conn.seed replays one seed of TestWorld, -conn.seeds runs more of them:
//
//	go test ./conn -run 'TestWorld/everything' -v -conn.seed=17
var (
	worldSeed  = flag.Uint64("conn.seed", 0, "replay this seed only")
	worldSeeds = flag.Int("conn.seeds", 6, "seeds per case")
)
