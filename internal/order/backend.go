package order

// Backend says how the service behind the gate reads a request. It decides what
// comes near a rule: a profile that reads less loosely refuses less.
type Backend int8

// The profiles.
const (
	Strict Backend = iota // refuse whatever any of the others, or one that is odder, could read differently
	Tomcat                // plain servlets
	Spring                // Spring MVC, also of the 4.x line
	PHP                   // mod_php, php-fpm, the built-in server; with front controllers
)

// readings are the liberties a backend takes. All of them were seen
// (docs/order-ids.md).
type readings struct {
	params     bool // cuts ;name=value off path segments
	backslash  bool // takes \ for /
	anyCase    bool // takes /ORDERS for /orders, also by Unicode folding
	trailing   bool // ignores what follows the last segment's name: a slash, .json, a space
	indexPHP   bool // reaches a route through /index.php/..., or /?route=...
	parameters bool // lets a parameter or cookie of the ID's name override the path, or a field the method
	authority  bool // takes what follows two slashes for a host: //x/orders/42 is /orders/42
	anyDepth   bool // looks for a member of JSON by its name, wherever it stands
	members    bool // takes the members of a JSON body for parameters
}

var profiles = [...]readings{
	Strict: {params: true, backslash: true, anyCase: true, trailing: true, indexPHP: true, parameters: true, anyDepth: true, authority: true, members: true},
	Tomcat: {params: true, anyDepth: true},
	Spring: {params: true, trailing: true, parameters: true},
	PHP:    {trailing: true, indexPHP: true, parameters: true, authority: true, members: true},
}

// frontControllers are the paths that reach a PHP front controller unless a rule says
// otherwise.
var frontControllers = []string{"/index.php", "/"}

// union is what at least one of two backends does.
func (r readings) union(o readings) readings {
	return readings{
		params: r.params || o.params, backslash: r.backslash || o.backslash, anyCase: r.anyCase || o.anyCase,
		trailing: r.trailing || o.trailing, indexPHP: r.indexPHP || o.indexPHP, parameters: r.parameters || o.parameters,
		anyDepth: r.anyDepth || o.anyDepth, authority: r.authority || o.authority,
		members: r.members || o.members,
	}
}
