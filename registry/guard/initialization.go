package guard

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

const (
	// outageAfter is how many failures in a row a Node may have before questions about it wait for the cloud: the first ones are reported at
	// once.
	outageAfter = 3
	// outagePatience is how long they wait. It is less than instanceDeadline, so that the result is the cloud's answer.
	outagePatience = 40 * time.Second
	// outagePause is the time between two questions; an inventory answers from memory while its listing fails.
	outagePause = 2 * time.Second
)

// waitForMetadata reads the metadata of a Node to be initialised. The framework doubles its pause after each failure, so that after an
// outage of a minute the Node would stay uninitialized for another one. Waiting here turns many failures into one.
func (i *instances) waitForMetadata(
	ctx context.Context, node *v1.Node, failures int,
) (metadata *cloudprovider.InstanceMetadata, err error) {
	began := time.Now()
	for {
		metadata, err = i.metadata(ctx, node)
		passes, _ := isTemporary(err)
		if failures < outageAfter || !passes || time.Since(began)+outagePause > outagePatience {
			return metadata, err
		}
		timer := time.NewTimer(outagePause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return metadata, err
		}
	}
}

// isTemporary returns what an error itself says; stated is false if it does not say whether it is temporary.
func isTemporary(err error) (is, stated bool) {
	said, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && said.Temporary(), ok
}
