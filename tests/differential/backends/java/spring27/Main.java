package orders;

import org.apache.catalina.connector.Connector;
import org.apache.tomcat.util.buf.EncodedSolidusHandling;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.web.embedded.tomcat.TomcatServletWebServerFactory;
import org.springframework.boot.web.server.WebServerFactoryCustomizer;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.util.AntPathMatcher;
import org.springframework.web.servlet.config.annotation.PathMatchConfigurer;
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer;

/**
 * Order service carried over from Spring 4 to Spring Boot 2.7, with the path
 * matching that it relied on kept: java -Dsightings=FILE orders.Main
 */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
@Import(OrderController.class)
public class Main implements WebMvcConfigurer {
    @Bean
    Sightings sightings() {
        return Ready.sightings("spring27");
    }

    @Override
    @SuppressWarnings("deprecation")
    public void configurePathMatch(PathMatchConfigurer paths) {
        AntPathMatcher matcher = new AntPathMatcher();
        matcher.setCaseSensitive(false);
        matcher.setTrimTokens(true);
        paths.setPathMatcher(matcher);
        paths.setUseSuffixPatternMatch(true);
        paths.setUseTrailingSlashMatch(true);
    }

    @Bean
    WebServerFactoryCustomizer<TomcatServletWebServerFactory> lenient() {
        return factory -> factory.addConnectorCustomizers((Connector connector) -> {
            connector.setEncodedSolidusHandling(EncodedSolidusHandling.DECODE.getValue());
            connector.setParseBodyMethods("POST,PUT,PATCH,DELETE");
        });
    }

    public static void main(String[] args) {
        System.setProperty("org.apache.catalina.connector.CoyoteAdapter.ALLOW_BACKSLASH", "true");
        SpringApplication application = new SpringApplication(Main.class);
        application.addListeners(new Ready());
        String[] settings = java.util.Arrays.copyOf(Ready.SETTINGS, Ready.SETTINGS.length + 1);
        settings[settings.length - 1] = "--spring.mvc.pathmatch.matching-strategy=ant_path_matcher";
        application.run(settings);
    }
}
