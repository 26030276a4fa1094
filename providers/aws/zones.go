package aws

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/anyccm/cloud-controller-manager/registry/keylock"
)

const (
	labelZoneID = "topology.k8s.aws/zone-id"
	// zonesRetry keeps an unknown zone from being asked for again and again.
	zonesRetry = 10 * time.Second
)

// zone is an availability zone.
type zone struct{ name, id, kind string }

// zones are read once, and again for one that is unknown.
type zones struct {
	api  *api
	once keylock.Locks

	mu    sync.Mutex
	known map[string]zone
	read  time.Time
}

func (z *zones) lookup(name string) (found zone, ok, fresh bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	found, ok = z.known[name]
	return found, ok, time.Since(z.read) < zonesRetry
}

// get returns a zone by its name.
func (z *zones) get(ctx context.Context, name string) (zone, error) {
	if found, ok, _ := z.lookup(name); ok {
		return found, nil
	}
	unlock, err := z.once.Lock(ctx, "zones")
	if err != nil {
		return zone{}, fmt.Errorf("waiting for the zones: %w", err)
	}
	defer unlock()
	found, ok, fresh := z.lookup(name)
	if !ok && !fresh {
		if err := z.readAll(ctx); err != nil {
			return zone{}, err
		}
		found, ok, _ = z.lookup(name)
	}
	if !ok {
		return zone{}, fmt.Errorf("EC2 knows no availability zone %q", name)
	}
	return found, nil
}

func (z *zones) readAll(ctx context.Context) error {
	out, err := call(ctx, z.api, "reading availability zones", (*ec2.Client).DescribeAvailabilityZones, &ec2.DescribeAvailabilityZonesInput{})
	if err != nil {
		return err
	}
	if len(out.AvailabilityZones) == 0 {
		return fmt.Errorf("reading availability zones: %w", errIncomplete)
	}
	known := map[string]zone{}
	for _, one := range out.AvailabilityZones {
		name := aws.ToString(one.ZoneName)
		known[name] = zone{name, aws.ToString(one.ZoneId), aws.ToString(one.ZoneType)}
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.known, z.read = known, time.Now()
	return nil
}
