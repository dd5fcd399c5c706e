package conformance

func groupC() []statement { return nil }
