package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
)

const (
	labelNetworkLayer = "topology.k8s.aws/network-node-layer-"

	// unsupportedFor is how long it is believed that a type of instances, or the region, knows no network topology.
	unsupportedFor = 24 * time.Hour
	// topologyBatch is the limit of instance IDs of DescribeInstanceTopology.
	topologyBatch = 100
	// layersFor is how long the place of an instance is remembered; it is asked for while its node is initialised.
	layersFor = time.Hour
	// topologyPause is how long a failure to read the place of instances is believed, by all whose nodes wait.
	topologyPause = 10 * time.Second
)

// topology returns the network position of instances, for types that have one.
type topology struct {
	api *api
	// required are the types whose nodes wait for it.
	required *regexp.Regexp
	once     keylock.Locks

	mu sync.Mutex
	// layers are the network nodes of instances that were read. They are kept for as long as nodes may ask for them.
	layers map[string]position
	// failure is why the latest read failed, and failed when.
	failure error
	failed  time.Time
	// unsupported holds until when types, instances and the region ("") are known to have no topology.
	unsupported map[string]time.Time
}

// position is where an instance is in the network.
type position struct {
	nodes []string
	read  time.Time
}

func newTopology(c Config, a *api) *topology {
	// the table has checked it
	return &topology{api: a, required: regexp.MustCompile(c.TopologyTypes), layers: map[string]position{}, unsupported: map[string]time.Time{}}
}

// labelsOf returns the labels of an instance's place in the network. prefetch are instances that are asked about at about the
// same time.
func (t *topology) labelsOf(ctx context.Context, one instance, prefetch func() []string) (map[string]string, error) {
	if one.kind == "" || t.isRead(one) {
		return t.labels(one.id), nil
	}
	unlock, err := t.once.Lock(ctx, "topology")
	if err != nil {
		return nil, fmt.Errorf("waiting for the network topology: %w", err)
	}
	defer unlock()
	if !t.isRead(one) {
		err := t.recentFailure()
		if err == nil {
			err = t.read(ctx, one, prefetch())
			t.noteFailure(ctx, err)
		}
		if err != nil {
			if t.required.MatchString(one.kind) {
				return nil, err
			}
			klog.V(2).InfoS("Initialising a node without its place in the network", "instance", one.id, "reason", err.Error())
			return map[string]string{}, nil
		}
	}
	return t.labels(one.id), nil
}

func (t *topology) recentFailure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.failed) < topologyPause {
		return t.failure
	}
	return nil
}

// noteFailure lets those who wait for the same lock have the answer, instead of one try after the other.
func (t *topology) noteFailure(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure, t.failed = err, time.Now()
}

func (t *topology) isRead(one instance) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, read := t.layers[one.id]; read {
		return true
	}
	for _, key := range []string{"", one.kind, one.id} {
		if time.Now().Before(t.unsupported[key]) {
			return true
		}
	}
	return false
}

func (t *topology) labels(id string) map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	labels := map[string]string{}
	for n, node := range t.layers[id].nodes {
		labels[labelNetworkLayer+strconv.Itoa(n+1)] = node
	}
	return labels
}

func (t *topology) read(ctx context.Context, one instance, prefetch []string) error {
	ids := []string{one.id}
	for _, id := range prefetch {
		if id != one.id && len(ids) < topologyBatch && !t.isRead(instance{id: id, kind: one.kind}) {
			ids = append(ids, id)
		}
	}
	out, err := call(ctx, t.api, "reading the network topology of instances", (*ec2.Client).DescribeInstanceTopology, &ec2.DescribeInstanceTopologyInput{InstanceIds: ids})
	if errors.Is(err, cloudapi.ErrNotFound) && len(ids) > 1 {
		return t.read(ctx, one, nil) // another instance is gone
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	until := time.Now().Add(unsupportedFor)
	code := codeOf(err)
	switch {
	case code == "UnsupportedOperation" || code == "UnauthorizedOperation":
		t.unsupported[""] = until
		return nil
	case err != nil:
		return err
	}
	now := time.Now()
	maps.DeleteFunc(t.layers, func(_ string, p position) bool { return now.Sub(p.read) > layersFor })
	for _, i := range out.Instances {
		if id := aws.ToString(i.InstanceId); slices.Contains(ids, id) {
			t.layers[id] = position{i.NetworkNodes, now}
		}
	}
	if _, told := t.layers[one.id]; !told {
		key := one.kind
		if t.required.MatchString(one.kind) {
			key = one.id
		}
		t.unsupported[key] = until
	}
	return nil
}
