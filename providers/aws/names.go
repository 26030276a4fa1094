package aws

import (
	"crypto/sha1" //nolint:gosec // names in the cloud are made of it, no secret is
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

const (
	serviceTag = "kubernetes.io/service-name"

	classicGroupPrefix = "k8s-elb-"
	// hashPart and namePart are lengths of parts of names.
	hashPart = 10
	namePart = 8

	policyProxy     = "k8s-proxyprotocol-enabled"
	policyTLSPrefix = "k8s-SSLNegotiationPolicy-"

	managedGroupDescription = "[k8s] Managed SecurityGroup for LoadBalancer"
)

// loadBalancerName is the name of both kinds of load balancers, which is the framework's.
func loadBalancerName(service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func serviceName(service *v1.Service) string { return service.Namespace + "/" + service.Name }

// classicGroupName is the name of the security group that a classic load balancer has of its own.
func classicGroupName(name string) string { return classicGroupPrefix + name }

func classicGroupDescription(name string, service *v1.Service) string {
	return "Security group for Kubernetes ELB " + name + " (" + serviceName(service) + ")"
}

var notAlphanumeric = regexp.MustCompile(`[^a-zA-Z0-9]`)

// shortened is a name without what AWS's names may not hold, cut to eight characters.
func shortened(name string) string {
	name = notAlphanumeric.ReplaceAllString(name, "")
	return name[:min(len(name), namePart)]
}

// managedGroupName is the name of the security group of a network load balancer. cluster is the value of --cluster-name.
func managedGroupName(cluster string, service *v1.Service) string {
	sum := sha256.Sum256([]byte(cluster + service.Name + service.Namespace + string(service.UID)))
	return targetGroupPrefix(service) + hex.EncodeToString(sum[:])[:hashPart]
}

// targetGroupPrefix begins the names of all target groups of a Service, and of Services whose names begin alike.
func targetGroupPrefix(service *v1.Service) string {
	return "k8s-" + shortened(service.Namespace) + "-" + shortened(service.Name) + "-"
}

// targetGroupName is the name of the target group of a port.
func targetGroupName(clusterID string, service *v1.Service, port int32, t desiredTargetGroup) string {
	parts := []string{
		clusterID, service.Namespace, service.Name, strconv.Itoa(int(port)), strconv.Itoa(int(t.port)), t.protocol, t.targetType,
		t.check.protocol, strconv.Itoa(int(t.check.interval)),
	}
	sum := sha1.Sum([]byte(strings.Join(parts, ""))) //nolint:gosec // no secret
	return targetGroupPrefix(service) + hex.EncodeToString(sum[:])[:hashPart]
}

// loadBalancerOfARN is the name in the ARN of a network load balancer, which no two have at a time; "" if it is of another kind.
func loadBalancerOfARN(arn string) string {
	_, path, _ := strings.Cut(arn, ":loadbalancer/net/")
	name, _, _ := strings.Cut(path, "/")
	return name
}
