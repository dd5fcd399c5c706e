package main

import "context"

func (a *app) oldInfo(ctx context.Context, args []string) int { return exitFailed }
