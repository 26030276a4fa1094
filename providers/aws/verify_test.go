package aws

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// TestVerifyInstance is the table of whose an instance is.
func TestVerifyInstance(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	id := w.sim.AddInstance(awssim.Spec{Name: "ip-10-0-0-1.ec2.internal", Tags: awssim.Tags{"Name": "worker-1"}})
	foreign := w.sim.AddInstance(awssim.Spec{Name: "foreign", Untagged: true})
	other := w.sim.AddInstance(awssim.Spec{Name: "other"})
	w.sim.Edit(other, func(i *awssim.Instance) { i.VPC = "vpc-other" })
	for _, c := range []struct{ node, instance, why string }{
		{"ip-10-0-0-1.ec2.internal", id, ""},
		{"ip-10-0-0-1", id, ""},
		{"worker-1", id, ""},
		{id, id, ""},
		{id + ".ec2.internal", id, ""},
		{"another", id, "is named neither"},
		{"foreign", foreign, "lacks the tag kubernetes.io/cluster/simulated"},
		{"other", other, "is in VPC vpc-other"},
		{"gone", "i-0123456789abcdef0", "EC2 knows no instance"},
		{"odd", "i-*", "is not the ID of an instance"},
	} {
		ok, why, err := w.VerifyInstance(t.Context(), withID(c.node, "aws:///us-east-1a/"+c.instance))
		require.NoError(t, err)
		assert.Equal(t, c.why == "", ok, "%s %s", c.node, why)
		assert.Contains(t, why, c.why)
	}
	ok, why, err := w.VerifyInstance(t.Context(), withID("pod", "aws:///us-east-1a/x/fargate-10.0.0.7"))
	require.NoError(t, err)
	assert.False(t, ok)
	assert.Contains(t, why, "Fargate")
	attested, why, err := w.AttestInstance(t.Context(), withID("pod", "aws:///us-east-1a/x/fargate-10.0.0.7"))
	require.NoError(t, err)
	assert.Empty(t, attested)
	assert.Contains(t, why, "Fargate")
	w.sim.Deny("DescribeInstances", true)
	w.restart()
	_, _, err = w.VerifyInstance(t.Context(), withID("n", "aws:///us-east-1a/"+id))
	require.Error(t, err, "no verdict")
}
