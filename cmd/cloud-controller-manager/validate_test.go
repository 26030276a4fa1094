package main

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
)

// TestValidateOfEachCloud: validate says of each Service what its cloud's controller would say, and names the field or the annotation.
func TestValidateOfEachCloud(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCallsOfPages$")
	args := []string{"validate", "--cloud-provider=all", "-o=json", "-f=testdata/validate.yaml"}
	cmd.Env = append(os.Environ(), callVariable+"="+strings.Join(args, "\n"))
	text, err := cmd.Output()
	if _, refused := errors.AsType[*exec.ExitError](err); !refused {
		require.NoError(t, err)
	}
	var said struct {
		Results []struct {
			Service, Cloud, Outcome string
			Findings                []struct{ Message string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &said), "%s", text)
	got := map[string]map[string]string{}
	for _, r := range said.Results {
		places := map[string]bool{}
		for _, f := range r.Findings {
			place, _, _ := strings.Cut(f.Message, ": ")
			places[place] = true
		}
		if r.Outcome != "served" {
			if got[r.Cloud] == nil {
				got[r.Cloud] = map[string]string{}
			}
			got[r.Cloud][strings.TrimPrefix(r.Service, "shop/")] = r.Outcome + ": " + strings.Join(slices.Sorted(maps.Keys(places)), "; ")
		}
	}
	for _, p := range registry.Linked().Providers() {
		if p.Features.LoadBalancers != registry.Done {
			continue
		}
		expected, err := expectations.Read(root, p)
		require.NoError(t, err)
		assert.Equal(t, expected.Validate, got[p.Name], p.Name)
	}
}

// TestFaultsHaveOneOrder: a Service with many faults has the same message each time, so that its event is not repeated with other words.
func TestFaultsHaveOneOrder(t *testing.T) {
	t.Parallel()
	for _, p := range registry.Linked().Providers() {
		if p.CheckService == nil {
			continue
		}
		s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{}}, Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeLoadBalancer, LoadBalancerSourceRanges: []string{"10.0.0.0", "?"},
			Ports: []v1.ServicePort{{Port: 80, Protocol: v1.ProtocolTCP}, {Port: 81, Protocol: v1.ProtocolUDP}},
		}}
		for _, a := range p.Annotations {
			value := "?,a=,{"
			if strings.Contains(a.Key, schema.Numbered) {
				value = strings.Repeat("?", 5000)
			}
			for _, port := range []string{"80", "81"} {
				s.Annotations[strings.ReplaceAll(a.Key, schema.Numbered, port)] = value
			}
		}
		for _, domain := range p.Domains {
			s.Annotations[domain+"/one"], s.Annotations[domain+"/other"] = "?", "?"
		}
		say := func() string {
			warnings, err := registry.CheckServiceOf(p, registry.Inputs{}, s)
			return errors.Join(warnings, err).Error()
		}
		first := say()
		for range 20 {
			require.Equal(t, first, say(), p.Name)
		}
	}
}

// othersRead are domains of annotations that other programs read on Services as well.
var othersRead = []string{
	"anyccm.io",                                           // Services may be meant for several clouds
	"service.beta.kubernetes.io", "service.kubernetes.io", // many clouds
	"alpha.cloud.google.com", "cloud.google.com", // GKE's Ingress
	"networking.gke.io",                               // GKE's Ingress and Gateway
	"kubernetes.digitalocean.com",                     // DOKS
	"kube-vip.io", "k8s.co", "loadbalancer.vmware.io", // kube-vip, keepalived-cloud-provider, NSX
}

// TestDomainsOfAnnotations: an unknown annotation in a domain that is the cloud's alone is reported, however little it resembles a known
// one.
func TestDomainsOfAnnotations(t *testing.T) {
	t.Parallel()
	for _, p := range registry.Linked().Providers() {
		for _, row := range p.Annotations {
			domain, _, _ := strings.Cut(row.Key, "/")
			assert.NotEqual(t, slices.Contains(othersRead, domain), slices.Contains(p.Domains, domain),
				"%s: say whether other programs read annotations of %s", p.Name, domain)
		}
		for _, domain := range p.Domains {
			s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{domain + "/unheard-of": "x"}}}
			require.ErrorContains(t, registry.FindIneffective(p, registry.Inputs{}, s), "is unknown and has no effect", "%s/unheard-of is passed over", domain)
		}
	}
}

// TestAnnotationsThatNeedOthers: an annotation that counts only together with another one is told of once where that is missing, and only
// there; so is each that another controller of the cloud alone reads.
func TestAnnotationsThatNeedOthers(t *testing.T) {
	t.Parallel()
	for _, p := range registry.Linked().Providers() {
		warned := func(given map[string]string) string {
			s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: given}, Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80}}}}
			registry.AsStored(s)
			warnings, _ := registry.CheckServiceOf(p, registry.Inputs{}, s)
			return errors.Join(warnings, errors.New("")).Error()
		}
		keys := map[string]bool{}
		for _, row := range p.Annotations {
			keys[row.Key] = true
			if row.Needs == nil {
				continue
			}
			with, without := append(slices.Clone(row.Needs.OneOf), "x")[0], append(slices.DeleteFunc(slices.Clone(row.Needs.NoneOf), isEmpty), "")[0]
			given := map[string]string{row.Key: "x"}
			if without != "" {
				given[row.Needs.Key] = without
			} else if len(row.Needs.OneOf) > 0 {
				given[row.Needs.Key] = "x" // options may decide where there is none
			}
			assert.Equal(t, 1, strings.Count(warned(given), row.Key+": has no effect"), "%s: %s", p.Name, row.Key)
			assert.NotContains(t, warned(map[string]string{row.Key: "x", row.Needs.Key: with}), row.Key+": has no effect", p.Name)
		}
		for key, hint := range p.Foreign {
			assert.False(t, keys[key], "%s: %s is served", p.Name, key)
			assert.Contains(t, warned(map[string]string{key: "x"}), key+": has no effect here: "+hint, p.Name)
		}
	}
}

func isEmpty(s string) bool { return s == "" }

// TestSwitchesThatOthersNeed: a switch that another annotation needs is on in each form that its cloud takes, and in no other.
func TestSwitchesThatOthersNeed(t *testing.T) {
	t.Parallel()
	const azure, aws = "service.beta.kubernetes.io/azure-", "service.beta.kubernetes.io/aws-load-balancer-"
	for _, c := range []struct {
		cloud, key, needs string
		on, off           []string
	}{
		{"azure", azure + "pls-name", azure + "pls-create", []string{"true", "TRUE", "tRUE", " true "}, []string{"false", "1", "t", "yes"}},
		{"azure", azure + "load-balancer-enable-high-availability-ports", azure + "load-balancer-internal", []string{"true", "tRUE"}, []string{"1", "T", ""}},
		{"aws", aws + "access-log-emit-interval", aws + "access-log-enabled", []string{"true", "True", "t", "1"}, []string{"tRUE", "yes", "0"}},
	} {
		p, err := registry.Linked().Lookup(c.cloud)
		require.NoError(t, err)
		for _, value := range slices.Concat(c.on, c.off) {
			s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{c.key: "5", c.needs: value}}}
			err := errors.Join(registry.FindIneffective(p, registry.Inputs{}, s), errors.New(""))
			assert.Equal(t, slices.Contains(c.off, value), strings.Contains(err.Error(), c.key+": has no effect unless"), "%s: %q", c.needs, value)
		}
	}
}

// TestFaultsOfTheFile: a fault of the cloud config is told as such, whatever else may set the same option; what its environment may add to
// it is no fault.
func TestFaultsOfTheFile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cloud, file, fault string }{
		{"cloudstack", "[Global]\napi-url = ftp://x\napi-key = k\nsecret-key = s", "key [Global] api-url of the cloud config: is not an address"},
		{"cloudstack", "[Global]\nssl-no-verify = true", ""},
		{"ovirt", "[connection]\nuri = ftp://x", "key [connection] uri of the cloud config: "},
		{"ovirt", "[connection]\ninsecure = true", ""},
		{"photon", "[Global]\ntarget = nonsense\nproject = p", "key [Global] target of the cloud config: is not an address"},
		{"photon", "[Global]\noverrideIP = true", ""},
		{"ibm", " ", "cloud config: is missing or empty"},
		{"oci", " ", "cloud config: is missing or empty"},
		{"gce", "[global]\ntoken-url = nil", ""},
		{"linode", "vpcIDs: [1]\nvpcNames: [a]\nsubnetIDs: [2]", "flags --vpc-ids and --vpc-names: exclude each other"},
		{"linode", "vpcIDs: [1]", ""},
		{"azure", "{subscriptionId: s, resourceGroup: g, location: l, vmType: vmss}", ""},
		{"azure", "{subscriptionId: s, resourceGroup: g}", "key location of the cloud config: is required"},
		{"aws", "[ServiceOverride \"1\"]\nService = EC2", "key [ServiceOverride \"1\"] Region of the cloud config: is required"},
		{"vsphere", "global:\n  port: 443\n  secretName: x", ""},
		{"vsphere", "vcenter:\n  one:\n    server: vc.example.com\n    port: many\n    secretName: x", "key vcenter.one.port of the cloud config: "},
		{"openstack", "[Global]\nuse-clouds = true\nclouds-file = /nowhere", ""},
		{"openstack", "[Global]\nauth-url = https://keystone.example.com", "key [Global] password of the cloud config: is required"},
		{"digitalocean", "region: nyc3\nregoin: x", "key regoin of the cloud config: is unknown"},
	} {
		p, err := registry.Linked().Lookup(c.cloud)
		require.NoError(t, err)
		var said []string
		for _, one := range schema.Problems(p.Validate(registry.Inputs{Sources: schema.Sources{File: []byte(c.file), FilePath: "config"}})) {
			if problem, is := errors.AsType[*schema.Problem](one); is && problem.InFile {
				said = append(said, one.Error())
			}
		}
		if c.fault == "" {
			assert.Empty(t, said, "%s: %s", c.cloud, c.file)
			continue
		}
		assert.Contains(t, strings.Join(said, "\n"), c.fault, "%s: %s", c.cloud, c.file)
	}
}

// TestJudgedWithoutClouds: clouds.yaml, which only the cluster may have, has nothing that Services are judged by. The rest of the file
// counts without it.
func TestJudgedWithoutClouds(t *testing.T) {
	t.Parallel()
	p, err := registry.Linked().Lookup("openstack")
	require.NoError(t, err)
	file := "[Global]\nuse-clouds = true\nclouds-file = /nowhere\n[LoadBalancer]\nlb-provider = ovn\n[LoadBalancerClass \"inner\"]\nsubnet-id = x\n"
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"loadbalancer.openstack.org/class": "inner"}},
		Spec:       v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80}}, LoadBalancerSourceRanges: []string{"192.0.2.0/24"}},
	}
	registry.AsStored(s)
	warnings, err := registry.CheckServiceOf(p, registry.Inputs{Sources: schema.Sources{File: []byte(file)}}, s)
	require.NoError(t, err, "the class is one of the file")
	require.ErrorContains(t, warnings, "spec.loadBalancerSourceRanges: ", "ovn restricts no clients")
}
