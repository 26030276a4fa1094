package aws

import (
	"errors"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

const (
	// patience is how long AWS usually takes to show new objects and to release those of a deleted load balancer. An operation waits that
	// long; after it the framework retries and reports a failure.
	patience = 3 * time.Minute
	// showsWithin is how long reads may lack what was just made.
	showsWithin = 6 * time.Second
)

// notAbsence keeps the absence of something that we just saw or made from being taken for an answer about the Service.
func notAbsence(err error) error {
	if errors.Is(err, cloudapi.ErrNotFound) {
		return &cloudapi.Error{Class: cloudapi.ErrConflict, Message: err.Error()}
	}
	return err
}
