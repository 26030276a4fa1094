package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/test/controlplane"
	"github.com/anyccm/cloud-controller-manager/test/harness"
	"github.com/anyccm/cloud-controller-manager/test/realclouds/results"
)

const (
	// motoVersion is installed if no moto_server is named or found.
	motoVersion = "5.2.5"
	// motoVariable names a program moto_server.
	motoVariable = "ANYCCM_MOTO"
	region       = "us-east-1"
	// clusterID is the cluster of everything that is seeded.
	clusterID  = "acceptance"
	instances  = 4
	podNetwork = "10.200.0.0/16"
)

// moto stands for AWS.
type moto struct {
	process *controlplane.Process
	url     string
	// machines are the instances by the name of their node.
	names    []string
	machines map[string]string
	table    string
	dir      string
}

func newMoto() services { return &moto{machines: map[string]string{}} }

// program finds moto_server, or installs it into a folder of the user's cache.
func (m *moto) program(ctx context.Context, r *run) (string, error) {
	if named := os.Getenv(motoVariable); named != "" {
		if _, err := os.Stat(named); err != nil {
			return "", notHere(fmt.Sprintf("%s: %v", motoVariable, err))
		}
		return named, nil
	}
	if found, err := exec.LookPath("moto_server"); err == nil {
		return found, nil
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", notHere("moto needs Python: there is no python3 on the PATH, and no moto_server; name one by " + motoVariable)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", notHere(fmt.Sprintf("moto has no place: %v", err))
	}
	venv := filepath.Join(cache, "anyccm", "moto-"+motoVersion)
	server := filepath.Join(venv, "bin", "moto_server")
	if _, err := os.Stat(server); err == nil {
		return server, nil
	}
	r.say("installing moto %s into %s", motoVersion, venv)
	if _, err := command(ctx, "", python, "-m", "venv", venv); err != nil {
		return "", notHere(fmt.Sprintf("Python makes no virtual environment: %v", err))
	}
	if _, err := command(ctx, "", filepath.Join(venv, "bin", "pip"), "install", "-q", "moto[server]=="+motoVersion); err != nil {
		_ = os.RemoveAll(venv) // what is half there would be taken the next time
		return "", notHere(fmt.Sprintf("moto cannot be installed from PyPI: %v", err))
	}
	return server, nil
}

// start implements services.
func (m *moto) start(ctx context.Context, r *run) (*harness.Outside, error) {
	server, err := m.program(ctx, r)
	if err != nil {
		return nil, err
	}
	if m.dir, err = controlplane.TempDir("moto"); err != nil {
		return nil, err
	}
	ports, err := controlplane.FreePorts(1)
	if err != nil {
		return nil, err
	}
	m.url = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	if m.process, err = controlplane.Start("moto", m.dir, server, []string{"-H", "127.0.0.1", "-p", strconv.Itoa(ports[0])}, nil); err != nil {
		return nil, err
	}
	if err := soon(ctx, "moto to answer", func(ctx context.Context) error { return reachable(ctx, m.url+"/moto-api/") }); err != nil {
		return nil, fmt.Errorf("%w: %s", err, m.process.Tail(10))
	}
	version, err := command(ctx, "", filepath.Join(filepath.Dir(server), "python3"), "-c", "import moto; print(moto.__version__)")
	if err != nil {
		version = "of an unknown version"
	}
	r.record.Title, r.record.Services = "moto, which simulates AWS", []string{"moto " + strings.TrimSpace(version)}
	file, err := m.seed(ctx, r)
	return &harness.Outside{
		Env: map[string]string{ //nolint:gosec // the key of AWS's documentation
			"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "example", "AWS_ENDPOINT_URL": m.url, "AWS_EC2_METADATA_DISABLED": "true",
		},
		CloudConfig: file,
	}, err
}

// stop implements services.
func (m *moto) stop() {
	if m.process != nil {
		m.process.Stop(3 * time.Second)
	}
	if m.dir != "" {
		_ = os.RemoveAll(m.dir) // a temporary folder
	}
}

// element is any part of an answer.
type element struct {
	XMLName  xml.Name
	Text     string    `xml:",chardata"`
	Children []element `xml:",any"`
}

// all are the texts of the elements at a path, such as item/subnetId, wherever that begins.
func (e *element) all(path string) []string {
	var found []string
	first, rest, more := strings.Cut(path, "/")
	for i := range e.Children {
		c := &e.Children[i]
		if c.XMLName.Local == first {
			if !more {
				found = append(found, strings.TrimSpace(c.Text))
				continue
			}
			found = append(found, c.at(rest)...)
		}
		found = append(found, c.all(path)...)
	}
	return found
}

// at are the texts at a path that begins right here.
func (e *element) at(path string) []string {
	var found []string
	first, rest, more := strings.Cut(path, "/")
	for i := range e.Children {
		c := &e.Children[i]
		switch {
		case c.XMLName.Local != first:
		case more:
			found = append(found, c.at(rest)...)
		default:
			found = append(found, strings.TrimSpace(c.Text))
		}
	}
	return found
}

// The services by the name that their requests are signed for, with the version of their API.
const (
	ec2Service  = "ec2 2016-11-15"
	elbService  = "elasticloadbalancing 2012-06-01"
	elb2Service = "elasticloadbalancing 2015-12-01"
)

// ask makes a call; parameters are key and value in turn. moto believes every signature.
func (m *moto) ask(ctx context.Context, service, action string, parameters ...string) (*element, error) {
	name, version, _ := strings.Cut(service, " ")
	form := url.Values{"Action": {action}, "Version": {version}}
	for i := 0; i+1 < len(parameters); i += 2 {
		form.Set(parameters[i], parameters[i+1])
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url+"/", strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("asking moto: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20260101/"+region+"/"+name+"/aws4_request, SignedHeaders=host, Signature=0")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking moto: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("asking moto: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: HTTP %d: %s", action, answer.StatusCode, lastLines(string(text), 3))
	}
	var e element
	if err := xml.Unmarshal(text, &e); err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	return &e, nil
}

// firstText is the first text at a path of an answer.
func (m *moto) firstText(ctx context.Context, path, service, action string, parameters ...string) (string, error) {
	e, err := m.ask(ctx, service, action, parameters...)
	if err != nil {
		return "", err
	}
	if found := e.all(path); len(found) > 0 {
		return found[0], nil
	}
	return "", fmt.Errorf("%s: the answer has no %s", action, path)
}

const clusterTag = "kubernetes.io/cluster/" + clusterID

// seed makes what a cluster has before any controller runs, and returns the cloud config.
func (m *moto) seed(ctx context.Context, r *run) (string, error) {
	vpc, err := m.firstText(ctx, "item/vpcId", ec2Service, "DescribeVpcs", "Filter.1.Name", "isDefault", "Filter.1.Value.1", "true")
	if err != nil {
		return "", err
	}
	mine := []string{"Filter.1.Name", "vpc-id", "Filter.1.Value.1", vpc}
	found, err := m.ask(ctx, ec2Service, "DescribeSubnets", mine...)
	if err != nil {
		return "", err
	}
	subnets := found.all("item/subnetId")
	if m.table, err = m.firstText(ctx, "item/routeTableId", ec2Service, "DescribeRouteTables", mine...); err != nil {
		return "", err
	}
	if r.record.Lacks, err = m.lacks(ctx, vpc, subnets[0]); err != nil {
		return "", err
	}
	if err := m.gateway(ctx, vpc); err != nil {
		return "", err
	}
	group, err := m.firstText(ctx, "groupId", ec2Service, "CreateSecurityGroup", "GroupName", "nodes", "GroupDescription", "nodes", "VpcId", vpc)
	if err != nil {
		return "", err
	}
	tags := []string{"ResourceId.1", m.table, "ResourceId.2", group, "Tag.1.Key", clusterTag, "Tag.1.Value", "owned"}
	if _, err := m.ask(ctx, ec2Service, "CreateTags", tags...); err != nil {
		return "", err
	}
	for _, subnet := range subnets {
		if _, err := m.ask(ctx, ec2Service, "CreateTags", "ResourceId.1", subnet, "Tag.1.Key", clusterTag, "Tag.1.Value", "shared",
			"Tag.2.Key", "kubernetes.io/role/elb", "Tag.2.Value", "1"); err != nil {
			return "", err
		}
	}
	for i := range instances {
		e, err := m.ask(ctx, ec2Service, "RunInstances", "ImageId", "ami-12c6146b", "InstanceType", "m5.large", "MinCount", "1", "MaxCount", "1",
			"SubnetId", subnets[i%len(subnets)], "SecurityGroupId.1", group, "TagSpecification.1.ResourceType", "instance",
			"TagSpecification.1.Tag.1.Key", clusterTag, "TagSpecification.1.Tag.1.Value", "owned")
		if err != nil {
			return "", err
		}
		ids, names := e.all("item/instanceId"), e.all("item/privateDnsName")
		if len(ids) == 0 || len(names) == 0 {
			return "", errors.New("RunInstances: the answer names no instance")
		}
		m.names, m.machines[names[0]] = append(m.names, names[0]), ids[0]
	}
	return fmt.Sprintf("[Global]\nRegion = %s\nVPC = %s\nSubnetID = %s\nKubernetesClusterID = %s\n", region, vpc, subnets[0], clusterID), nil
}

// gateway makes the subnets public.
func (m *moto) gateway(ctx context.Context, vpc string) error {
	gateway, err := m.firstText(ctx, "internetGateway/internetGatewayId", ec2Service, "CreateInternetGateway")
	if err != nil {
		return err
	}
	if _, err := m.ask(ctx, ec2Service, "AttachInternetGateway", "InternetGatewayId", gateway, "VpcId", vpc); err != nil {
		return err
	}
	_, err = m.ask(ctx, ec2Service, "CreateRoute", "RouteTableId", m.table, "DestinationCidrBlock", "0.0.0.0/0", "GatewayId", gateway)
	return err
}

// join implements services.
func (m *moto) join(ctx context.Context, r *run) error { return r.join(ctx, m.names) }

// values implements services.
func (*moto) values() harness.Values {
	return harness.Values{"routes.clusterCIDR": podNetwork}
}

// suite implements services: the load balancers of both generations.
func (*moto) suite() []suiteRun {
	return []suiteRun{
		{part: "suite, classic load balancers"},
		{part: "suite, network load balancers", args: []string{"-annotation=service.beta.kubernetes.io/aws-load-balancer-type=nlb"}},
	}
}

// listLeft implements services.
func (m *moto) listLeft(ctx context.Context) ([]string, error) {
	var all []string
	for _, list := range []struct{ service, action, path string }{
		{elbService, "DescribeLoadBalancers", "member/LoadBalancerName"},
		{elb2Service, "DescribeLoadBalancers", "member/LoadBalancerArn"},
		{elb2Service, "DescribeTargetGroups", "member/TargetGroupArn"},
		{ec2Service, "DescribeSecurityGroups", "item/groupId"},
	} {
		e, err := m.ask(ctx, list.service, list.action)
		if err != nil {
			return nil, err
		}
		for _, id := range e.all(list.path) {
			all = append(all, list.action+" "+id)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

const (
	partRoutes   = "routes"
	partDeletion = "deletion"
)

// before implements services: there is nothing to compare with.
func (m *moto) before(context.Context, *run) error { return nil }

// try implements services: routes to all nodes, and a node whose instance goes.
func (m *moto) try(ctx context.Context, r *run) error {
	if !r.wants("steps") {
		return nil
	}
	for i, name := range m.names {
		patch := fmt.Sprintf(`{"spec":{"podCIDR":"10.200.%d.0/24","podCIDRs":["10.200.%d.0/24"]}}`, i, i)
		_, err := r.cluster.Kube.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("giving node %s its range: %w", name, err)
		}
	}
	if err := m.routed(ctx, r, "a route to each node, and no node is without network", m.names); err != nil {
		return err
	}
	gone := m.names[len(m.names)-1]
	began := time.Now()
	if _, err := m.ask(ctx, ec2Service, "TerminateInstances", "InstanceId.1", m.machines[gone]); err != nil {
		return err
	}
	if err := r.cluster.SetReady(ctx, gone, false); err != nil {
		return err
	}
	t := results.Trial{Part: partDeletion, Name: "the Node of an instance that was terminated goes, and no other one", Result: results.Held}
	if err := soon(ctx, "Node "+gone+" to go", func(ctx context.Context) error {
		_, err := r.cluster.Kube.CoreV1().Nodes().Get(ctx, gone, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	}); err != nil {
		t.Result, t.Details = results.Failed, []string{err.Error()}
	}
	t.Seconds = time.Since(began).Seconds()
	list, err := r.cluster.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	if len(list.Items) != len(m.names)-1 {
		t.Result, t.Details = results.Failed, append(t.Details, fmt.Sprintf("%d of %d Nodes are left", len(list.Items), len(m.names)))
	}
	r.note(t)
	return m.routed(ctx, r, "the route to a Node that has gone goes", m.names[:len(m.names)-1])
}

// routed waits until the routes of the pod network lead to nodes, and the nodes say that they have a network.
func (m *moto) routed(ctx context.Context, r *run, name string, nodes []string) error {
	var want []string
	for i, node := range nodes {
		want = append(want, fmt.Sprintf("10.200.%d.0/24 %s", i, m.machines[node]))
	}
	t := results.Trial{Part: partRoutes, Name: name, Result: results.Held}
	began := time.Now()
	failure := soon(ctx, name, func(ctx context.Context) error {
		routes, err := m.routes(ctx)
		if err != nil {
			return err
		}
		if !slices.Equal(routes, want) {
			return fmt.Errorf("routes %v instead of %v", routes, want)
		}
		for _, node := range nodes {
			n, err := r.cluster.Kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, c := range n.Status.Conditions {
				if c.Type == v1.NodeNetworkUnavailable && c.Status != v1.ConditionFalse {
					return fmt.Errorf("node %s is without network: %s", node, c.Message)
				}
			}
		}
		return nil
	})
	t.Seconds = time.Since(began).Seconds()
	if failure != nil {
		t.Result, t.Details = results.Failed, []string{failure.Error()}
	}
	r.note(t)
	return ctx.Err()
}

// routes are those of the pod network, with the instances that they lead to.
func (m *moto) routes(ctx context.Context) ([]string, error) {
	e, err := m.ask(ctx, ec2Service, "DescribeRouteTables", "RouteTableId.1", m.table)
	if err != nil {
		return nil, err
	}
	var found []string
	var walk func(*element)
	walk = func(at *element) {
		to, instance := at.at("destinationCidrBlock"), at.at("instanceId")
		if len(to) == 1 && len(instance) == 1 && strings.HasPrefix(to[0], "10.200.") {
			found = append(found, to[0]+" "+instance[0])
		}
		for i := range at.Children {
			walk(&at.Children[i])
		}
	}
	walk(e)
	slices.Sort(found)
	return found, nil
}
