<?php
// Routes of the templates that the test has written to $SIGHTINGS.templates, one a line.

// Records each template whose handler a decoded path reaches: exactly spelt, as routers of
// frameworks do, and in any case. The index of the template is its order, from 1 on.
function by_template(string $path, string $via): void
{
    static $all = null;
    $all ??= @file(setting('SIGHTINGS') . '.templates', FILE_IGNORE_NEW_LINES) ?: [];
    foreach (['' => '', 'i' => ', any case'] as $flag => $how) {
        foreach ($all as $i => $template) {
            $pattern = str_replace('\{id\}', '([^/]+)', preg_quote($template, '#'));
            if (preg_match("#^$pattern/*\$#u$flag", $path)) {
                see(false, $i + 1, "template by $via$how");
                break; // the first one
            }
        }
    }
}
