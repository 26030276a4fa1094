package aws

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// servedServices are the Services of type LoadBalancer.
type servedServices struct {
	// lister is set before the first call of the framework.
	lister listers.ServiceLister
}

func (s *servedServices) all() []*v1.Service {
	if s.lister == nil {
		return nil
	}
	all, err := s.lister.List(labels.Everything())
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(s *v1.Service) bool { return s.Spec.Type != v1.ServiceTypeLoadBalancer })
}

// tagReader reads the tags of load balancers and target groups, as far as that is permitted.
type tagReader struct {
	records *records
	served  *servedServices
	// refused is when the permission was refused, and warned says so once.
	refused atomic.Pointer[time.Time]
	warned  sync.Once
}

// errTagsRefused is the answer about tags for a while after the permission to read them was refused.
var errTagsRefused = errors.New("the permission elasticloadbalancing:DescribeTags is refused")

// tagsRefusedFor is how long that is believed.
const tagsRefusedFor = 10 * time.Minute

// isUnreadable reports whether tags could not be read for lack of a permission that AWS's own controller does not need. What has
// the name is the Service's all the same: the name carries its UID.
func (t *tagReader) isUnreadable(err error) bool {
	if errors.Is(err, errTagsRefused) {
		return true
	}
	if !permissionRefused(err) {
		return false
	}
	t.refused.Store(new(time.Now()))
	t.warned.Do(func() {
		klog.Warning("Load balancers are recognised only by their names, because their tags may not be read: allow elasticloadbalancing:DescribeTags")
	})
	return true
}

// checkPermission returns errTagsRefused for some time after a refusal.
func (t *tagReader) checkPermission() error {
	if at := t.refused.Load(); at != nil && time.Since(*at) < tagsRefusedFor {
		return errTagsRefused
	}
	return nil
}

// classicTags reads the tags of a classic load balancer, together with those of the Services' other load balancers.
func (t *tagReader) classicTags(ctx context.Context, lb *classicLoadBalancer) (map[string]string, error) {
	name := aws.ToString(lb.LoadBalancerName)
	if err := t.checkPermission(); err != nil {
		if known, ok := t.records.classicTags.Peek(name); ok {
			return known.value, nil // what we gave it ourselves
		}
		return nil, err
	}
	return t.read(ctx, t.records.classicTags, name, func(name string) string {
		if _, known := t.records.classics.Peek(name); !known {
			return ""
		}
		return name
	})
}

// networkTags reads the tags of a network load balancer or a target group.
func (t *tagReader) networkTags(ctx context.Context, arn string) (map[string]string, error) {
	if err := t.checkPermission(); err != nil {
		return nil, err
	}
	return t.read(ctx, t.records.networkTags, arn, func(name string) string {
		lb, known := t.records.networks.Peek(name)
		if !known {
			return ""
		}
		return aws.ToString(lb.LoadBalancerArn)
	})
}

// read reads the tags with a key. keyOf returns the key of a Service's load balancer by its name, "" if it has none of the kind.
func (t *tagReader) read(ctx context.Context, from *tagInventory, key string, keyOf func(name string) string) (map[string]string, error) {
	ctx = inventory.WithPrefetch(ctx, func() (keys []string) {
		for _, service := range t.served.all() {
			if other := keyOf(loadBalancerName(service)); other != "" {
				keys = append(keys, other)
			}
		}
		return keys
	})
	found, err := from.Get(ctx, key, inventory.Query{MaxAge: tagsMaxAge})
	return found.value, err
}
