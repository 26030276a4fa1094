package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

const (
	clusterTagPrefix = "kubernetes.io/cluster/"
	legacyClusterTag = "KubernetesCluster"
	ownedValue       = "owned"
)

// identity is where we are and which cluster we serve.
type identity struct {
	region, vpc, subnet string
	clusterID           string
	// legacy makes every set of tags carry the older tag of the cluster as well.
	legacy bool
	// selfID and selfDNS are the instance that runs this program; empty if it runs elsewhere.
	selfID, selfDNS string
}

// clusterTag is the key of the cluster's ownership tag.
func (i *identity) clusterTag() string { return clusterTagPrefix + i.clusterID }

// isTagged reports whether tags carry the cluster's tag, whatever its value.
func (i *identity) isTagged(tags map[string]string) bool {
	_, tagged := tags[i.clusterTag()]
	return tagged || tags[legacyClusterTag] == i.clusterID
}

// isOwned reports whether tags say that the cluster made the thing, and may delete it.
func (i *identity) isOwned(tags map[string]string) bool {
	return tags[i.clusterTag()] == ownedValue || tags[legacyClusterTag] == i.clusterID
}

// isOnlyOwner reports whether tags carry the cluster's tag, and that of no other cluster.
func (i *identity) isOnlyOwner(tags map[string]string) bool {
	for key := range tags {
		if strings.HasPrefix(key, clusterTagPrefix) && key != i.clusterTag() {
			return false
		}
	}
	return i.isTagged(tags)
}

// otherOwner names the cluster that tags give a thing to, if that is another one and not ours as well.
func (i *identity) otherOwner(tags map[string]string) string {
	if i.isTagged(tags) {
		return ""
	}
	for key := range tags {
		if other, found := strings.CutPrefix(key, clusterTagPrefix); found {
			return other
		}
	}
	return tags[legacyClusterTag]
}

// isOwnedByOther reports whether tags say that another cluster made the thing, and not this one.
func (i *identity) isOwnedByOther(tags map[string]string) bool {
	if i.isTagged(tags) {
		return false
	}
	for key, value := range tags {
		if (strings.HasPrefix(key, clusterTagPrefix) && value == ownedValue) || key == legacyClusterTag {
			return true
		}
	}
	return false
}

// ownershipTags are the tags of what the cluster owns.
func (i *identity) ownershipTags() map[string]string {
	tags := map[string]string{i.clusterTag(): ownedValue}
	if i.legacy {
		tags[legacyClusterTag] = i.clusterID
	}
	return tags
}

// connect returns the clients and the identity, found at the first call. A failure is repeated to all callers for a while.
func (a *api) connect(ctx context.Context) (*clients, *identity, error) {
	if c, id, err := a.cachedIdentity(); c != nil || err != nil {
		return c, id, err
	}
	unlock, err := a.once.Lock(ctx, "identity")
	if err != nil {
		return nil, nil, fmt.Errorf("waiting to find out the region and the cluster: %w", err)
	}
	defer unlock()
	if c, id, err := a.cachedIdentity(); c != nil || err != nil {
		return c, id, err
	}
	c, id, err := a.identify(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			a.failedAt, a.failure = time.Now(), err
		}
		return nil, nil, err
	}
	a.clients, a.identity, a.failure = c, id, nil
	return c, id, nil
}

// isOtherVPC reports whether a VPC is not the cluster's. Private names and addresses are only unique within a VPC.
func (a *api) isOtherVPC(vpc string) bool {
	_, id, _ := a.cachedIdentity()
	return id != nil && vpc != "" && id.vpc != "" && vpc != id.vpc
}

func (a *api) cachedIdentity() (*clients, *identity, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clients == nil && a.failure != nil && time.Since(a.failedAt) < identifyPause {
		return nil, nil, a.failure
	}
	return a.clients, a.identity, nil
}

// identify finds out the region, and the instance that runs this program unless the cloud config has what it would show.
func (a *api) identify(ctx context.Context) (*clients, *identity, error) {
	c := a.config
	region, err := a.region(ctx)
	if err != nil {
		return nil, nil, err
	}
	made, err := a.newClients(ctx, region)
	if err != nil {
		return nil, nil, err
	}
	id := &identity{
		region: region, vpc: c.VPC, subnet: c.SubnetID, clusterID: cmp.Or(c.ClusterID, c.LegacyClusterID), legacy: c.LegacyClusterID != "",
	}
	if c.offInstance() {
		return made, id, nil
	}
	selfID, err := a.metadata(ctx, "instance-id")
	if err != nil {
		return nil, nil, fmt.Errorf("finding out which instance runs this program: %w; off EC2, set VPC, KubernetesClusterID and SubnetID or RoleARN in the cloud config", err)
	}
	out, err := callWith(ctx, made, "reading the instance that runs this program", (*ec2.Client).DescribeInstances, &ec2.DescribeInstancesInput{InstanceIds: []string{selfID}})
	if err != nil {
		return nil, nil, err
	}
	self, ok := instanceIn(out, selfID)
	if !ok {
		return nil, nil, fmt.Errorf("reading the instance %s that runs this program: %w", selfID, errIncomplete)
	}
	id.vpc, id.subnet, id.selfID, id.selfDNS = self.vpc, self.subnet, selfID, self.privateDNS
	return made, id, id.readCluster(self.tags)
}

// readCluster reads the ID of the cluster from the tags of our instance, unless the cloud config has it.
func (i *identity) readCluster(tags map[string]string) error {
	if i.clusterID != "" {
		return nil
	}
	legacy, found := tags[legacyClusterTag], ""
	for key := range tags {
		id, tagged := strings.CutPrefix(key, clusterTagPrefix)
		if !tagged {
			continue
		}
		if found != "" {
			return fmt.Errorf("the instance %s has tags of two clusters, %s and %s; remove one, or set KubernetesClusterID in the cloud config", i.selfID, min(found, id), max(found, id))
		}
		found = id
	}
	if found != "" && legacy != "" && found != legacy {
		return fmt.Errorf("the instance %s has the tags %s=%s and %s%s, which name two clusters; make them equal", i.selfID, legacyClusterTag, legacy, clusterTagPrefix, found)
	}
	i.clusterID, i.legacy = cmp.Or(found, legacy), legacy != ""
	if i.clusterID == "" {
		return fmt.Errorf("the ID of the cluster is unknown: tag the instance %s with %s<ID>, or set KubernetesClusterID in the cloud config", i.selfID, clusterTagPrefix)
	}
	return nil
}

// region is that of the cloud config, of the environment or shared files, or of the instance.
func (a *api) region(ctx context.Context) (string, error) {
	c := a.config
	if known := cmp.Or(regionForm.FindString(c.Zone), c.Region, c.RegionEnv); known != "" {
		return known, nil
	}
	base, err := a.sdkConfig(ctx, "")
	if err != nil {
		return "", err
	}
	if base.Region != "" {
		return base.Region, nil
	}
	region, err := a.metadata(ctx, "placement/region")
	if err != nil {
		return "", fmt.Errorf("finding out the region: %w; set Region in the cloud config, or AWS_REGION", err)
	}
	return region, nil
}

var errMetadataDisabled = errors.New("the instance metadata service is switched off (AWS_EC2_METADATA_DISABLED)")

// metadata asks the instance metadata service.
func (a *api) metadata(ctx context.Context, path string) (string, error) {
	if a.config.MetadataDisabled {
		return "", errMetadataDisabled
	}
	loaded, err := a.loadConfig(ctx, "")
	if err != nil {
		return "", err
	}
	if a.dial != nil {
		loaded.HTTPClient = &http.Client{Transport: cloudapi.NoRedirects(cloudapi.NewTransport(a.dial))}
	}
	client := imds.NewFromConfig(loaded, func(options *imds.Options) {
		// Without an override, the SDK's settings stand, such as the mode of the endpoint for IPv6.
		options.Endpoint = a.config.endpointOf(serviceMetadata, "", options.Endpoint).URL
	})
	out, err := client.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if err != nil {
		return "", &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "asking the instance metadata service for " + path, Message: err.Error(), Cause: err}
	}
	defer out.Content.Close()
	text, err := io.ReadAll(io.LimitReader(out.Content, maxMetadata))
	if err != nil {
		return "", fmt.Errorf("asking the instance metadata service for %s: %w", path, err)
	}
	value := strings.TrimSpace(string(text))
	if value == "" || strings.ContainsAny(value, "<> \n") {
		return "", fmt.Errorf("asking the instance metadata service for %s: %w", path, errIncomplete)
	}
	return value, nil
}

// maxMetadata bounds one value of the instance metadata service.
const maxMetadata = 1 << 10
