// Package aws runs Kubernetes on Amazon Web Services: EC2's instances are nodes, classic and network load balancers serve
// Services.
package aws

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awslimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Name is the value of --cloud-provider, and the scheme of provider IDs.
const Name = "aws"

// Description returns the provider's name, options, annotations and limits.
func Description() registry.Provider {
	return maker(limitsOf).Describe(registry.Provider{
		Name: Name, Title: "AWS", Stability: "alpha", SDK: "github.com/aws/aws-sdk-go-v2",
		Limits:             awslimits.Table,
		InstanceTags:       registry.InstanceTags{Called: "tags"},
		ProviderIDPrefixes: []string{providerIDPrefix, "i-", "/"}, // the latter without a scheme, as older kubelets had them
		InstanceKey:        instanceKey,
		Features: registry.Features{
			Instances: registry.Done, Zones: registry.Done, ServingCertificates: registry.Done, Routes: registry.Done,
			LoadBalancers: registry.Done, Internal: registry.Done, ReservedAddresses: registry.Done, TLS: registry.Done,
			ProxyProtocol: registry.Done, UDP: registry.Done, DualStack: registry.Done, SourceRanges: registry.Done,
		},
		Extras: []string{"Fargate", "tagging of instances"},
		Controllers: []registry.Controller{
			{Name: taggingController, Rights: []registry.Right{{Resources: []string{"nodes"}, Verbs: []string{"patch"}}}},
		},
		Unserved:        unsupportedReason,
		ServedElsewhere: &schema.Where{Key: annotationType, OneOf: []string{typeNLBIP, typeExternal}},
		Sections:        map[string]string{"policy": policyDocument(), "foreign": foreignTable()},
		Foreign:         foreignAnnotations(),
		Routes:          func(in registry.Inputs) bool { return in.ClusterCIDR != "" },
		Options:         Options.Rows(), Annotations: Annotations.Rows(), Events: eventRows(),
		Permissions: permissions(), Installation: installation(), CheckService: checkService, ServiceFields: serviceFields,
	})
}

func init() {
	cloudprovider.RegisterCloudProvider(Name, registry.Register(Description()))
}

// maker makes the cloud with limits on its calls.
func maker(limits limitsFunc) cloudbase.Maker[Config, *api, *cloud] {
	return cloudbase.Maker[Config, *api, *cloud]{
		Config: parseConfig, API: func(c Config, in registry.Inputs) (*api, error) { return newAPI(c, in, limits) }, Cloud: buildCloud,
	}
}

// cloud implements cloudprovider.Interface.
type cloud struct {
	cloudbase.Whole

	config        Config
	api           *api
	instances     *instances
	network       *vpcNetwork
	loadBalancers *loadBalancers
	routes        *routes
	tagging       *tagging
	kube          kubernetes.Interface
	// translate shows a Service of the API server as the framework's calls show it: with the annotations that portable ones, and the
	// defaults of its class, stand for.
	translate func(*v1.Service) *v1.Service
}

var _ registry.ControllerRunner = (*cloud)(nil)

func buildCloud(config Config, a *api, in registry.Inputs) (*cloud, error) {
	i := newInstances(config, a)
	n := newNetwork(a, i.zones)
	c := &cloud{
		config: config, api: a, instances: i, network: n, loadBalancers: newLoadBalancers(config, a, i, n),
		routes:    &routes{config: config, api: a, instances: i, network: n, made: inventory.Recent[string]{Within: showsWithin}},
		tagging:   newTagging(config, a),
		translate: func(s *v1.Service) *v1.Service { return registry.Translate(Description(), in, s).Service },
	}
	c.ServiceAPI = c.loadBalancers
	if in.ClusterCIDR != "" {
		c.RouteAPI = c.routes
	}
	c.Name, c.HTTP, c.NodeAPI, c.Begin, c.Inform = Name, a.http, i, c.begin, c.inform
	return c, nil
}

// begin makes what the program leads known to the parts.
func (c *cloud) begin(b cloudbase.Begun) {
	c.kube = b.Kube
	c.loadBalancers.setEvents(b.Events)
}

// inform hands the caches to the parts.
func (c *cloud) inform(in cloudbase.Informers) {
	nodes := in.Nodes()
	c.instances.nodes.SetLister(nodes.Lister())
	c.tagging.informer = nodes.Informer()
	c.tagging.lister = nodes.Lister()
	c.loadBalancers.setServices(in.Services().Lister())
}

// StartController implements registry.ControllerRunner.
func (c *cloud) StartController(ctx context.Context, name string) (bool, error) {
	if name != taggingController {
		return false, nil
	}
	if err := c.config.Tagging.check(); err != nil {
		return false, err
	}
	return true, c.tagging.start(ctx, c.kube)
}

// checkService judges a Service without any network. One that another controller serves is none of ours.
func checkService(in registry.Inputs, service *v1.Service) (warnings, err error) {
	if _, elsewhere := kindOf(service); elsewhere {
		return nil, nil
	}
	c, _, _ := parseConfig(in)
	s, warnings, err := parseSettings(service, c)
	if err == nil {
		listeners := networkListeners("", service, s, c)
		warnings = errors.Join(warnings, rangesProblem(service, s, c, plannedEntrance(service, s, c), listeners))
	}
	if len(in.File) > 0 {
		return warnings, err
	}
	var kept []error
	for _, w := range schema.Problems(warnings) {
		if annotationOf(w) != annotationGroups { // whether it counts is for the cloud config to say
			kept = append(kept, w)
		}
	}
	return errors.Join(kept...), err
}

// installation says what installing the provider takes.
func installation() registry.Installation {
	return registry.Installation{
		Credentials: []registry.Credential{
			{Name: "accessKeyID", Key: "access-key-id", Env: "AWS_ACCESS_KEY_ID_FILE", Optional: true, Help: "ID of an access key."},
			{Name: "secretAccessKey", Key: "secret-access-key", Env: "AWS_SECRET_ACCESS_KEY_FILE", Optional: true, Help: "Secret of that access key."},
		},
		Config: registry.CloudConfig{
			Format: registry.INI, AnyCase: true, File: "cloud.conf",
			Example: "Global: {Region: us-east-1, VPC: vpc-0a1b2c3d4e5f60718, SubnetID: subnet-0a1b2c3d4e5f60718, KubernetesClusterID: production}",
			Sections: []registry.NamedSection{{
				Kind: "ServiceOverride", Keys: []string{"Service", "Region", "URL", "SigningRegion", "SigningName", "SigningMethod"},
			}},
		},
		Secret: Name,
		Notes: []string{
			"The role of the control plane's instances needs [this policy](providers/aws.md#permissions); instances, their security group and " +
				"the subnets need the tag `kubernetes.io/cluster/<ID>`. Instead of that role, the ServiceAccount can have one: `--set " +
				`serviceAccount.annotations."eks\.amazonaws\.com/role-arn"=arn:aws:iam::…` + "`. An access key is the last resort.",
			"Off EC2, and where pods cannot reach the metadata service, set `Region`, `VPC`, `SubnetID` and `KubernetesClusterID` under " +
				"`cloudConfig.Global`. Your own machine needs them too: in [a file](providers/aws.md#sample-configuration) for `preflight`, `plan` and " +
				"`orphans`. Credentials come from where the AWS CLI has them, such as `AWS_PROFILE`:",
			"```\nbin/cloud-controller-manager preflight --cloud-provider=aws --cloud-config=cloud.conf --kubeconfig=$HOME/.kube/config\n```",
			"Kubelets name their nodes by the private DNS name or the ID of the instance, or run with `--provider-id`. For routes set " +
				"`routes.clusterCIDR`.",
		},
		Migration: registry.Migration{
			Credentials: "none where a role gives them; `serviceAccount.annotations` can stay",
			ClusterName: "part of the names of managed security groups, keep it",
			Written:     "nothing, except a health check's time-out and unhealthy threshold that had no effect before",
			Origin: registry.Origin{
				Namespace: "kube-system", Workloads: []string{"daemonset/aws-cloud-controller-manager"}, Lease: "cloud-controller-manager",
				Flags: []registry.OldFlag{
					{Flag: "--cloud-provider=aws"},
					{Flag: "--v=2"},
					{Flag: "--configure-cloud-routes=false", Why: "there are routes only where `routes.clusterCIDR` is set"},
					{Flag: "--use-service-account-credentials=true", Value: "serviceAccount.perController=true"},
				},
			},
			Notes: []string{
				"AWS's published policy also lacks `elasticloadbalancing:DescribeTargetGroupAttributes`, " +
					"`elasticloadbalancing:ModifyTargetGroupAttributes`, `ec2:DescribeNetworkInterfaces` and `ec2:DeleteTags`, which AWS's own " +
					"controller calls as well.",
				"AWS's own controller needs `--configure-cloud-routes=false` on most clusters; here routes are off unless `routes.clusterCIDR` is " +
					"set. Its lease has the same name, so step 3 works unchanged. Where the tagging controller runs, add `tagging` to `controllers`.",
			},
		},
		MaxSlimMiB: 54,
	}
}
