package aws

import (
	"embed"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// seen are the operations that the simulators of all tests of this package were called for.
var seen sync.Map

// observe is the Options.Observe of every simulated region in these tests.
func observe(operation string) { seen.Store(operation, true) }

// newRegion are the options of a region whose calls are noted.
func newRegion(o awssim.Options) awssim.Options {
	o.Observe = observe
	return o
}

// actionOf is the action of IAM that an operation needs.
func actionOf(operation string) string {
	service, name, _ := strings.Cut(strings.TrimSuffix(operation, " {id}"), " ")
	switch service {
	case "EC2":
		return prefixEC2 + name
	case "ELB", "ELBv2":
		return prefixELB + name
	case "STS":
		return "sts:" + name
	}
	return ""
}

func permittedActions() []string {
	var all []string
	for _, p := range permissions() {
		all = append(all, p.Needs...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkPermissions compares the permissions with the calls of the tests: every call is permitted, and after a complete run every permission
// was used.
func checkPermissions() error {
	permitted, made := permittedActions(), map[string]bool{}
	var missing []string
	seen.Range(func(operation, _ any) bool {
		action := actionOf(fmt.Sprint(operation))
		made[action] = true
		if action != "" && !slices.Contains(permitted, action) {
			missing = append(missing, action)
		}
		return true
	})
	if len(missing) > 0 {
		return fmt.Errorf("these actions are called and not among the permissions: %v", missing)
	}
	if f := flag.Lookup("test.run"); f == nil || f.Value.String() != "" || flag.Lookup("test.skip").Value.String() != "" {
		return nil
	}
	var idle []string
	for _, action := range permitted {
		if !made[action] && !strings.HasPrefix(action, "iam:") {
			idle = append(idle, action)
		}
	}
	if len(idle) > 0 {
		return fmt.Errorf("these actions are permitted and never called: %v", idle)
	}
	return nil
}

// sdkMethod takes the method expression (*service.Client).Operation apart, which is how this package names operations.
func sdkMethod(n ast.Node) (service, operation string) {
	method, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	receiver, ok := method.X.(*ast.ParenExpr)
	if !ok {
		return "", ""
	}
	pointer, ok := receiver.X.(*ast.StarExpr)
	if !ok {
		return "", ""
	}
	kind, ok := pointer.X.(*ast.SelectorExpr)
	if !ok || kind.Sel.Name != "Client" {
		return "", ""
	}
	return fmt.Sprint(kind.X), method.Sel.Name
}

//go:embed *.go
var sources embed.FS

// TestPermissions: every call in the code has its action among the permissions, and every action its call.
func TestPermissions(t *testing.T) {
	t.Parallel()
	files, err := sources.ReadDir(".")
	require.NoError(t, err)
	called := map[string]bool{"sts:AssumeRole": true, "iam:CreateServiceLinkedRole": true}
	for _, file := range files {
		if strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		text, err := sources.ReadFile(file.Name())
		require.NoError(t, err)
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), text, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if service, operation := sdkMethod(n); service == "ec2" {
				called[prefixEC2+operation] = true
			} else if service != "" {
				called[prefixELB+operation] = true
			}
			return true
		})
	}
	for _, action := range permittedActions() {
		assert.True(t, called[action], "%s is permitted and no code calls it", action)
		delete(called, action)
	}
	assert.Empty(t, called, "called without being among the permissions")
}

// TestPermissionsBeyond: what AWS's own controller calls needs no addition; everything else does.
func TestPermissionsBeyond(t *testing.T) {
	t.Parallel()
	theirs := strings.Fields(`ec2:DescribeInstances ec2:DescribeAvailabilityZones ec2:DescribeInstanceTopology ec2:DescribeNetworkInterfaces ec2:DescribeSubnets
		ec2:DescribeRouteTables ec2:DescribeSecurityGroups ec2:CreateSecurityGroup ec2:DeleteSecurityGroup ec2:AuthorizeSecurityGroupIngress ec2:RevokeSecurityGroupIngress
		ec2:CreateTags ec2:DeleteTags ec2:CreateRoute ec2:DeleteRoute ec2:ModifyInstanceAttribute iam:CreateServiceLinkedRole sts:AssumeRole`)
	for name := range strings.FieldsSeq(`CreateLoadBalancer DeleteLoadBalancer DescribeLoadBalancers DescribeLoadBalancerAttributes ModifyLoadBalancerAttributes AddTags
		RegisterInstancesWithLoadBalancer DeregisterInstancesFromLoadBalancer CreateLoadBalancerPolicy SetLoadBalancerPoliciesForBackendServer
		SetLoadBalancerPoliciesOfListener AttachLoadBalancerToSubnets DetachLoadBalancerFromSubnets CreateLoadBalancerListeners DeleteLoadBalancerListeners
		ApplySecurityGroupsToLoadBalancer ConfigureHealthCheck SetSecurityGroups CreateTargetGroup DescribeTargetGroups ModifyTargetGroup DeleteTargetGroup
		DescribeTargetHealth DescribeTargetGroupAttributes ModifyTargetGroupAttributes RegisterTargets DeregisterTargets CreateListener DescribeListeners ModifyListener DeleteListener`) {
		theirs = append(theirs, prefixELB+name)
	}
	for _, p := range permissions() {
		assert.ElementsMatch(t, difference(p.Needs, theirs), p.Beyond, p.For)
		assert.Equal(t, len(p.Beyond) > 0, p.Without != "", p.For)
	}
}

// TestPolicy: the policy on the page has no wildcard action and is for one region.
func TestPolicy(t *testing.T) {
	t.Parallel()
	text := policyDocument()
	assert.NotContains(t, text, ":*")
	assert.NotContains(t, text, "Describe*")
	assert.Contains(t, text, "aws:RequestedRegion")
	for _, action := range policyActions() {
		assert.Contains(t, text, `"`+action+`"`)
	}
}

// TestTagsMayNotBeRead: AWS's own controller never reads tags of load balancers, so its policy lacks the permission. Names then show which
// Service an object belongs to.
func TestTagsMayNotBeRead(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*v1.Service{
		"classic": service("web", map[string]string{annotationTags: "team=web"}, servicePort("http", 80, 30080)),
		"network": nlb("web", nil, servicePort("http", 80, 30080)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{})
			w.Apply(s)
			w.ensure(s)
			w.sim.Deny("DescribeTags", true)
			w.restart()
			w.server.ResetCalls()
			s := w.ensure(s)
			w.ensure(s)
			assert.LessOrEqual(t, w.server.Calls().ByOperation["ELB DescribeTags"]+w.server.Calls().ByOperation["ELBv2 DescribeTags"], 1)
			assert.LessOrEqual(t, w.server.Calls().Writes, 1, "tags that a Service asks for are given once")
			s = w.change(s, addPort)
			w.ensure(s)
			w.addNode(awssim.Spec{Name: "joiner"})
			w.update(s)
			if name == "classic" {
				assert.Len(t, w.sim.Classics()[0].Listeners, 2)
				assert.Len(t, w.sim.Classics()[0].Instances, 2)
			} else {
				assert.Len(t, w.sim.Listeners(), 2)
				assert.Len(t, w.sim.TargetGroups()[1].Targets, 2)
			}
			assert.NotContains(t, w.Events(), eventNotOurs)
			require.NoError(t, w.remove(s))
			assert.Empty(t, snapshot(w.sim))
		})
	}
}
