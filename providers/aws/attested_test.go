package aws

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestAttested: secondary addresses may be those of pods, and the tag Name is whatever somebody wrote.
func TestAttested(t *testing.T) {
	t.Parallel()
	shown := newInstance(&ec2types.Instance{
		InstanceId: aws.String("i-1"), PrivateDnsName: aws.String("ip-10-0-0-1.ec2.internal"), PublicIpAddress: aws.String("192.0.2.1"),
		Tags: []ec2types.Tag{{Key: aws.String("Name"), Value: aws.String("api.example.com")}},
		NetworkInterfaces: []ec2types.InstanceNetworkInterface{
			{
				PrivateIpAddresses: []ec2types.InstancePrivateIpAddress{
					{PrivateIpAddress: aws.String("10.0.0.1"), Primary: aws.Bool(true)}, {PrivateIpAddress: aws.String("10.0.0.7")},
				},
				Ipv6Addresses: []ec2types.InstanceIpv6Address{
					{Ipv6Address: aws.String("2001:db8::1"), IsPrimaryIpv6: aws.Bool(true)}, {Ipv6Address: aws.String("2001:db8::7")},
				},
			},
			{PrivateIpAddresses: []ec2types.InstancePrivateIpAddress{{PrivateIpAddress: aws.String("10.0.1.1"), Primary: aws.Bool(true)}}},
		},
	})
	a := shown.attestedIdentity()
	assert.Equal(t, []string{"ip-10-0-0-1.ec2.internal", ""}, a.Names)
	assert.Equal(t, contract.AttestedAddresses("192.0.2.1", "10.0.0.1", "2001:db8::1", "10.0.1.1"), a.Addresses)
}
