<?php
// Order service with a front controller that is called directly as well as by rewritten
// paths. It puts path, query, form and cookies into one map, takes the path from
// parse_url and lets requests override their method, as frameworks of their time did. The
// members of a JSON body count as a form's fields, as they do in Laravel.
// What it takes for an order goes to $SIGHTINGS, as in ../php/index.php.

require __DIR__ . '/seen.php';
require __DIR__ . '/templates.php';

// A route that is known, with what its path says. Lookups are of the methods named.
function run(bool $settle, array $vars, array $methods, string $via): void
{
    if (!$settle && !in_array(method(), $methods)) {
        return;
    }
    foreach ([array_merge($vars, $_GET, $_POST, $_COOKIE), array_merge($_COOKIE, $_GET, $_POST, $vars)] as $all) {
        foreach (['id', 'orderId', 'order_id'] as $name) {
            see($settle, $all[$name] ?? '', "$via, $name of all");
        }
    }
}

$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
if (!is_string($path)) { // what it cannot parse, or a host without a path
    $path = parse_url($_SERVER['REQUEST_URI']) === false ? strtok($_SERVER['REQUEST_URI'], '?') : '/';
}
$called = preg_match('#^/+(index\.php(/|$)|$)#', rawurldecode($path)); // by its own path
$path = preg_replace('#^/+index\.php(?=/|$)#i', '', rawurldecode($path)) ?: '/';
by_template($path, 'parse_url');
if (preg_match('#^/+orders/+([^/]+)(/+settle)?/*$#i', $path, $m)) {
    run(isset($m[2]), ['id' => $m[1]], READ, 'path');
}
if (preg_match('#^/+(query|snake|cookie|form)/+(settle|order)/*$#i', $path, $m)) {
    run(strtolower($m[2]) === 'settle', [], strtolower($m[1]) === 'form' ? ['POST'] : READ, strtolower($m[1]));
}
if (preg_match('#^/+json/+(settle|order)/*$#i', $path, $m)) {
    $in = json_decode(file_get_contents('php://input'), true);
    if (is_array($in) && ($m[1] === 'settle' || method() === 'POST')) {
        see($m[1] === 'settle', $in['orderId'] ?? '', 'json');
    }
}
if (preg_match('#^/+header/+(settle|order)/*$#i', $path, $m)) {
    if ($m[1] === 'settle' || in_array(method(), READ)) {
        see($m[1] === 'settle', $_SERVER['HTTP_X_ORDER_ID'] ?? '', 'header');
    }
}
// Called directly, or by a path that the web server has rewritten into parameters. Where
// parse_url finds no path, that is the root as well.
$direct = preg_match('#^/*$#', $path) || !is_string(parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH));
if ($direct || isset($_SERVER['ROUTED']) || isset($_SERVER['REDIRECT_ROUTED'])) {
    $all = array_merge($_COOKIE, $_GET, $_POST);
    $action = $all['action'] ?? '';
    $action = is_string($action) ? strtolower(trim($action)) : '';
    if ($action === 'settle' || $action === 'show' && ($direct || in_array(method(), READ))) {
        run($action === 'settle', [], [method()], $direct ? 'called directly' : 'rewritten');
    }
}
// A path that a web server in front has rewritten.
foreach (['HTTP_X_ORIGINAL_URL', 'HTTP_X_REWRITE_URL'] as $name) {
    if (preg_match('#^/*orders/+([^/]+)(/+settle)?/*$#i', $_SERVER[$name] ?? '', $m)) {
        run(isset($m[2]), ['id' => $m[1]], READ, $name);
    }
}
// A path that the web server has put into a parameter, before those of the query (QSA):
// the last one counts. Only routes come that way.
$known = '#^/+(orders/+[^/]+(/+settle)?|(query|snake|cookie|form|json|header)/+(settle|order))/*$#i';
foreach (['q', 'url'] as $name) {
    $text = $_GET[$name] ?? '';
    if (preg_match($known, $path) && is_string($text) && preg_match('#^/*orders/+([^/]+)(/+settle)?/*$#i', $text, $m)) {
        run(isset($m[2]), ['id' => $m[1]], READ, "$name in the query");
    }
}
if (method() === 'POST') {
    $all = array_merge($_COOKIE, $_GET, $_POST);
    if (preg_match('#^/+orders/*$#i', $path) || $called && ($all['action'] ?? '') === 'create') {
        create();
    }
}
echo "done\n";
