package conformance

func groupK() []statement { return nil }
