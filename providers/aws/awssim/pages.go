package awssim

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

var _ simkit.Pager = (*Sim)(nil)

// paged are the actions whose answers have pages.
func paged() []string {
	return []string{
		"DescribeInstances", "DescribeLoadBalancers", "DescribeTargetGroups", "DescribeListeners", "DescribeSecurityGroups", "DescribeSubnets", "DescribeRouteTables",
	}
}

// endless begins the tokens of pages that repeat.
const endless = "endless-"

// FirstPage implements simkit.Pager.
func (*Sim) FirstPage(r *http.Request) bool {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || !slices.Contains(paged(), form.Get("Action")) {
		return false
	}
	simkit.SetPage(r, strings.TrimPrefix(form.Get("NextToken")+form.Get("Marker"), endless))
	form.Del("NextToken")
	form.Del("Marker")
	text := form.Encode()
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	return true
}

// Followed implements simkit.Pager.
func (*Sim) Followed(r *http.Request, body []byte) []byte {
	token := fmt.Sprint(endless, simkit.Page(r)+1)
	if at := bytes.LastIndex(body, []byte("Result>")); at >= 0 { // Elastic Load Balancing
		at = bytes.LastIndex(body[:at], []byte("</"))
		return slices.Concat(body[:at], []byte("<NextMarker>"+token+"</NextMarker>"), body[at:])
	}
	at := bytes.LastIndex(body, []byte("</"))
	if at < 0 {
		return body
	}
	return slices.Concat(body[:at], []byte("<nextToken>"+token+"</nextToken>"), body[at:])
}
