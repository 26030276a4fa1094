package guard

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

const (
	// awayAfter is how many failures in a row a Node may have before questions about it wait for the cloud: the first ones are reported at
	// once.
	awayAfter = 3
	// awayPatience is how long they wait. It is less than instanceDeadline, so that the result is the cloud's answer.
	awayPatience = 40 * time.Second
	// awayPause is the time between two questions; an inventory answers from memory while its listing fails.
	awayPause = 2 * time.Second
)

// patiently reads the metadata of a Node to be initialised. The framework doubles its pause after each failure, so that after an outage of
// a minute the Node would stay uninitialized for another one. Waiting here turns many failures into one.
func (i *instances) patiently(ctx context.Context, node *v1.Node, failures int) (metadata *cloudprovider.InstanceMetadata, err error) {
	began := time.Now()
	for {
		metadata, err = i.metadata(ctx, node)
		if failures < awayAfter || !saidTemporary(err) || time.Since(began)+awayPause > awayPatience {
			return metadata, err
		}
		timer := time.NewTimer(awayPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return metadata, err
		}
	}
}

// saidTemporary reports whether an error itself says that it is temporary.
func saidTemporary(err error) bool {
	said, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && said.Temporary()
}
