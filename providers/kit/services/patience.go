package services

import (
	"context"
	"errors"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/registry/progress"
)

// Patiently repeats a function for as long as it returns a RetryError, until limit would be exceeded.
func Patiently(ctx context.Context, limit time.Duration, do func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := do()
		later, asks := errors.AsType[*cloudproviderapi.RetryError](err)
		if !asks || time.Now().Add(later.RetryAfter()).After(deadline) || !pause(ctx, later) {
			return err
		}
	}
}

// pause waits for the requested time; it returns false if the context ends before.
func pause(ctx context.Context, later *cloudproviderapi.RetryError) bool {
	defer progress.Note(ctx, later.Error())()
	timer := time.NewTimer(later.RetryAfter())
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
