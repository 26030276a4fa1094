package guard

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

const (
	// awayAfter is how many failures in a row a Node may have before a question about it waits for the cloud: these cost the framework
	// no time, and whoever looks learns at once what is wrong.
	awayAfter = 3
	// awayPatience is how long it waits then. It is less than instanceDeadline, so that the answer is the cloud's.
	awayPatience = 40 * time.Second
	// awayPause lies between two questions; an inventory answers from memory while its listing fails.
	awayPause = 2 * time.Second
)

// patiently is metadata for a Node that is to be initialised. The framework pauses after each failure twice as long as before, so that
// after an outage of a minute the Node would stay without its cloud for another one. A cloud that does not answer is therefore waited for
// here, which is one failure instead of many.
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

// saidTemporary reports whether an error itself says that the same question may have an answer later.
func saidTemporary(err error) bool {
	said, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && said.Temporary()
}
